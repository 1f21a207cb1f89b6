# Both commands of the README, and those for developers, set up everything they need.
# Variables: PYTHON (the interpreter to build .venv with), WORKERS (parallel test processes), TORCH_INDEX (where
# to take torch from: PyTorch's index of CPU builds has them without CUDA, a tenth of the size).

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check bench soak format clean

demo: $(STAMP)
	@$(BIN)/python -m demo.run --out demo-out

test: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src demo benchmarks
	$(BIN)/lint-imports
	$(BIN)/pytest -n $(WORKERS) -m "not process"
	$(BIN)/pytest -n $(WORKERS) --dist loadfile -m process

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src demo benchmarks
	$(BIN)/lint-imports
	$(BIN)/pytest -n $(WORKERS) -m "not process and not slow"

bench: $(STAMP)
	$(BIN)/python -m benchmarks.run --out bench-out

soak: $(STAMP)
	$(BIN)/python -m tests.simulation.run --seeds 100000
	ELASTANE_TEST_KILLS=200 $(BIN)/pytest tests/process/test_kills.py

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache demo-out bench-out

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON=$(PYTHON) VENV=$(VENV) TORCH_INDEX=$(TORCH_INDEX) sh scripts/setup.sh
	@touch $(STAMP)
