"""Which link fits a device, and where its peers meet."""

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from elastane.store.base import Store
from elastane.store.open import open_store
from elastane.worker import network as network_module
from elastane.worker.network import CONNECT_TIMEOUT_S, connect_link, open_device, torch_device


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(f"memory://{uuid.uuid4()}") as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "device"), [("cpu:0", "cpu"), ("cpu:3", "cpu"), ("cuda:1", "cuda:1"), ("cuda:0", "cuda:0")]
)
def test_all_slots_of_the_cpu_are_one_device_and_accelerators_are_many(name: str, device: str) -> None:
    assert torch_device(name) == torch.device(device)


def test_the_cpu_needs_no_context() -> None:
    open_device(torch.device("cpu"))


def test_an_accelerator_makes_its_context_before_the_script_does(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", opened.append)
    open_device(torch.device("cuda:1"))
    assert opened == [torch.device("cuda:1")]


@pytest.mark.parametrize(
    ("device", "kind", "told"),
    [
        ("cpu:2", "direct gloo", (1, 2, "10.0.0.1", CONNECT_TIMEOUT_S)),
        ("cuda:1", "nccl", (1, 2, torch.device("cuda:1"))),
    ],
)
def test_the_link_fits_the_device_and_its_peers_meet_under_the_prefix_of_the_attempt(
    store: Store, monkeypatch: pytest.MonkeyPatch, device: str, kind: str, told: tuple[object, ...]
) -> None:
    made: list[tuple[str, tuple[object, ...]]] = []

    def connect(name: str) -> Any:
        def make(rendezvous: Any, *arguments: object) -> str:
            rendezvous.set("1", b"here")
            made.append((name, arguments))
            return f"a {name} link"

        return make

    for name in ("gloo", "nccl"):
        monkeypatch.setattr(network_module, f"connect_{name}", connect(name))
    monkeypatch.setattr(
        network_module, "Courier", lambda link, device: (link, device)
    )  # needs an accelerator
    monkeypatch.setattr(network_module, "connect_direct", lambda link: link.replace("a ", "a direct "))
    courier = connect_link(store, "link/7/", (1, 2), device, "10.0.0.1", threading.Event())
    assert courier == (f"a {kind} link", torch_device(device))
    assert made == [(kind.removeprefix("direct "), told)]
    assert [(entry.key, entry.value) for entry in store.range("link/").entries] == [("link/7/1", b"here")]
