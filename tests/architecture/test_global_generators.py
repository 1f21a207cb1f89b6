"""Nothing in the package draws from a global random generator: they belong to the training loop.

Every virtual worker's batch and forward pass run under seeds of their own. A single number drawn in
between, by whatever thread, changes the result of the job.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "elastane"
MAY_SEED = {"worker/seeding.py", "worker/permutation.py", "agent/zygote.py"}
"""Modules whose business is to seed: by a seed of the job, or afresh in a new process."""
OWN_GENERATORS = {"Random", "SystemRandom", "default_rng", "Generator", "SeedSequence", "PCG64"}
TORCH_DRAWS = {
    "rand",
    "randn",
    "randint",
    "randperm",
    "rand_like",
    "randn_like",
    "bernoulli",
    "normal",
    "seed",
}


def draws(tree: ast.AST) -> Iterator[str]:
    """Yield every use of a global generator of `random`, `numpy.random` or torch."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        owner = ast.unparse(node.value)
        if owner in ("random", "np.random", "numpy.random") and node.attr not in OWN_GENERATORS:
            yield f"{owner}.{node.attr} (line {node.lineno})"
        if owner == "torch" and node.attr in TORCH_DRAWS:
            yield f"torch.{node.attr} (line {node.lineno})"


def test_no_module_draws_from_a_global_generator() -> None:
    found = {
        name: uses
        for path in sorted(SOURCE.rglob("*.py"))
        if (name := path.relative_to(SOURCE).as_posix()) not in MAY_SEED
        and (uses := list(draws(ast.parse(path.read_text()))))
    }
    assert found == {}


def test_a_global_draw_would_be_noticed() -> None:
    assert list(
        draws(ast.parse("import random\nrandom.uniform(0, 1)\ntorch.randn(3)\nrandom.Random(1)"))
    ) == [
        "random.uniform (line 2)",
        "torch.randn (line 3)",
    ]
