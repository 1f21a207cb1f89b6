"""Which devices a node offers: accelerators where there are some, else shares of the processor.

Looks without importing torch, which takes a second, and without touching CUDA, which no fork survives.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from elastane.model.errors import ConfigError
from elastane.model.ids import DeviceId

_NVIDIA_DEVICES = Path("/proc/driver/nvidia/gpus")
"""One folder a device while the NVIDIA driver is loaded."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_DEVICE = re.compile(r"(cpu|cuda):[0-9]{1,4}")
_SLOTS_WITHOUT_N = 64
"""Processor shares while N is not known yet: empty ones cost nothing, one too few bars a scale-out."""


def name_cpu_slots(count: int) -> tuple[DeviceId, ...]:
    """Return the ids of `count` shares of the processor: "cpu:0", "cpu:1", ...

    Raises:
        ConfigError: `count` is below 1.
    """
    if count < 1:
        raise ConfigError(f"{count} processor shares asked for; a node needs at least 1")
    return tuple(DeviceId(f"cpu:{index}") for index in range(count))


def compute_cpu_slots(cores: int, wanted: int, virtual_workers: int | None) -> int:
    """Return how many shares a processor has: enough for every worker the job may ever want.

    More shares than cores let workers share a core: slow, but the result is the same.
    """
    return max(cores, wanted, virtual_workers or _SLOTS_WITHOUT_N)


def find_devices(
    wanted: int, virtual_workers: int | None, environment: Mapping[str, str]
) -> tuple[DeviceId, ...]:
    """Return the devices of this machine: its accelerators, or else shares of its processor."""
    cuda = count_cuda_devices(environment)
    if cuda:
        return name_cuda_devices(cuda)
    cores = len(os.sched_getaffinity(0))
    return name_cpu_slots(compute_cpu_slots(cores, wanted, virtual_workers))


def parse_devices(text: str, environment: Mapping[str, str]) -> tuple[DeviceId, ...]:
    """Return the devices that a person names: "2" for the first two, or a list like "cuda:0,cuda:3".

    Raises:
        ConfigError: the text is neither, or the machine has fewer.
    """
    if text.isascii() and text.isdigit():
        cuda = count_cuda_devices(environment)
        if not cuda:
            return name_cpu_slots(int(text))
        if not 1 <= int(text) <= cuda:
            raise ConfigError(f"--devices {text}: this machine has {cuda} CUDA devices")
        return name_cuda_devices(int(text))
    names = tuple(DeviceId(part.strip()) for part in text.split(","))
    bad = [name for name in names if not _DEVICE.fullmatch(name)]
    if bad or len(set(names)) < len(names):
        raise ConfigError(
            f"--devices {text!r} is neither a number nor a list of different devices like cuda:0,cuda:1"
        )
    cuda = count_cuda_devices(environment)
    # Where none is seen the driver may be one that does not say so: then the list is taken at its word.
    missing = [name for name in names if cuda and name not in name_cuda_devices(cuda) and "cuda" in name]
    if missing:
        raise ConfigError(f"--devices {text}: this machine has {cuda} CUDA devices, so no {missing[0]}")
    return names


def count_cuda_devices(environment: Mapping[str, str], drivers: Path = _NVIDIA_DEVICES) -> int:
    """Return how many CUDA devices a process with this environment will see."""
    visible = environment.get(_VISIBLE)
    if visible is not None:
        listed = [part.strip() for part in visible.split(",")]
        # CUDA ignores everything from the first invalid entry on; "-1" is the usual way to hide all.
        return next((i for i, part in enumerate(listed) if part in ("", "-1")), len(listed))
    return len(list(drivers.iterdir())) if drivers.is_dir() else 0


def name_cuda_devices(count: int) -> tuple[DeviceId, ...]:
    """Return the ids of the first `count` CUDA devices: "cuda:0", "cuda:1", ..."""
    return tuple(DeviceId(f"cuda:{index}") for index in range(count))
