"""The stock twins train what the examples train; the machine is described."""

import ast
from pathlib import Path

import benchmarks.workloads
import pytest
import torch
from benchmarks.machine import collect_versions, describe_machine
from benchmarks.workloads import DIGITS, LM, MLP25M, WORKLOADS, Workload


def assigned(source: str, name: str) -> list[str]:
    """Return the expressions that are assigned to `name`, in order, without `.to(...)` around them."""
    assignments = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assign)]
    return [ast.unparse(_bare(node.value)) for node in assignments if ast.unparse(node.targets[0]) == name]


def _bare(value: ast.expr) -> ast.expr:
    match value:
        case ast.Call(func=ast.Attribute(value=inner, attr="to")):
            return inner
    return value


TWINS = Path(benchmarks.workloads.__file__).read_text(encoding="utf-8")


@pytest.mark.parametrize("workload", [DIGITS, MLP25M], ids=lambda workload: workload.name)
def test_a_twin_has_the_model_of_its_example(workload: Workload) -> None:
    model = assigned(workload.script.read_text(encoding="utf-8"), "model")[0]

    assert model in assigned(TWINS, "model")


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda workload: workload.name)
def test_a_twin_has_the_optimizer_of_its_example(workload: Workload) -> None:
    optimizer = assigned(workload.script.read_text(encoding="utf-8"), "optimizer")[0]

    assert optimizer in assigned(TWINS, "optimizer")


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda workload: workload.name)
def test_a_twin_takes_the_batch_size_that_its_example_takes(workload: Workload) -> None:
    text = workload.script.read_text(encoding="utf-8")

    assert f'"--batch-size", type=int, default={workload.batch_size})' in text


@pytest.mark.parametrize("workload", [DIGITS, LM], ids=lambda workload: workload.name)
def test_a_twin_computes_a_loss_of_its_batches(workload: Workload) -> None:
    twin = workload.build()
    batch = torch.utils.data.default_collate([twin.dataset[index] for index in range(2)])

    loss = twin.loss(twin.model, batch)

    assert loss.shape == ()
    assert loss.requires_grad


def test_versions_and_machine_are_named() -> None:
    assert {"python", "elastane", "torch"} <= collect_versions().keys()
    assert {"processor", "cores", "memory", "system", "load"} <= describe_machine().keys()
