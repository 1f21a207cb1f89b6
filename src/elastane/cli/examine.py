"""Examine one part of this machine each and say what was found and how to mend it. Changes nothing lasting.

Every function returns a finding and raises nothing for a machine that is merely unfit: that is the answer.
"""

import ctypes
import importlib
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil

from elastane.cli.home import HOME_VARIABLE, Home
from elastane.model.errors import StoreError
from elastane.store.base import DeleteKey, Put
from elastane.store.local_disk import NETWORK_FILE_SYSTEMS, find_file_system, read_mounts
from elastane.store.open import open_store
from elastane.worker.peer_memory import allow_reads_by

MIN_PYTHON = (3, 11)
MIN_TORCH = (2, 6)
TESTED_TORCH = (2, 13)
"""The torch that the tests run on; see constraints.txt."""
MIN_FREE_BYTES = 1 << 30
"""Below it a saved state of a mid-sized model may not fit."""
MIN_SHARED_BYTES = 64 << 20
"""What containers give by default; data-loading workers pass their batches through /dev/shm."""
MIN_OPEN_FILES = 1024
"""The usual default; a worker with data-loading workers and links to its peers needs some hundreds."""
STORE_SAMPLES = 20
SLOW_STORE_S = 0.02
"""A change of topology takes about ten writes in a row: above this they are felt as 0.2 s."""
PROBE_PREFIX = "doctor/"
_READ_MEMORY = """
import ctypes, sys
from elastane.worker.peer_memory import PeerMemory
seen = ctypes.create_string_buffer(16)
PeerMemory(int(sys.argv[1])).read(int(sys.argv[2]), ctypes.addressof(seen), 16)
sys.stdout.buffer.write(seen.raw)
"""


class Verdict(StrEnum):
    """Say how a part of the machine does."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Hold what was found about one part of the machine."""

    name: str
    verdict: Verdict
    found: str
    mend: str = ""
    """What to do about it; empty if all is well."""


def examine_python(version: tuple[int, int] = sys.version_info[:2]) -> Finding:
    """Examine the Python that runs this."""
    found = f"{version[0]}.{version[1]} ({sys.executable})"
    if version < MIN_PYTHON:
        wanted = ".".join(map(str, MIN_PYTHON))
        mend = f"install Python {wanted} or newer and make the virtual environment anew"
        return fail("python", found, mend)
    return ok("python", found)


def load_torch() -> Any:
    """Return the torch module, or the exception that kept it from loading."""
    try:
        return importlib.import_module("torch")
    except (ImportError, OSError) as error:
        return error


def examine_torch(torch: Any, import_s: float = 0.0) -> Finding:
    """Examine the torch that `load_torch` returned after `import_s` seconds."""
    if isinstance(torch, Exception):
        mend = "install it into this environment: pip install 'torch>=2.6'"
        return fail("torch", f"cannot be loaded: {torch}", mend)
    version = str(torch.__version__)
    numbers = tuple(int(part) for part in version.partition("+")[0].split(".")[:2])
    if numbers < MIN_TORCH:
        return fail("torch", version, "pip install --upgrade 'torch>=2.6'")
    if numbers != TESTED_TORCH:
        mend = f"nothing needs to be done; tests run on {TESTED_TORCH[0]}.{TESTED_TORCH[1]}"
        return warn("torch", version, mend)
    return ok("torch", f"{version}, loads in {import_s:.1f} s")


def examine_communication(torch: Any) -> Finding:
    """Examine which of torch's communication back ends are there."""
    if isinstance(torch, Exception) or not torch.distributed.is_available():
        mend = "install a torch that was built with distributed support (the official wheels are)"
        return fail("communication", "no torch.distributed", mend)
    names = ("gloo", "nccl")
    there = [name for name in names if getattr(torch.distributed, f"is_{name}_available")()]
    if "gloo" not in there:
        mend = "install a torch that was built with gloo (the official wheels are)"
        return fail("communication", ", ".join(there), mend)
    return ok("communication", ", ".join(there))


def examine_devices(torch: Any) -> Finding:
    """Examine the accelerators, and the cores that workers on the CPU share."""
    cores = len(os.sched_getaffinity(0))
    found = [f"{cores} CPU core{'' if cores == 1 else 's'}"]
    if not isinstance(torch, Exception) and torch.cuda.is_available():
        found += [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    if cores == 1:
        mend = "jobs run, but workers on the CPU share one core: a second worker brings no speed"
        return warn("devices", ", ".join(found), mend)
    return ok("devices", ", ".join(found))


def examine_threads(environment: Mapping[str, str] = os.environ) -> Finding:
    """Examine what the environment says about the threads of each worker."""
    text = environment.get("OMP_NUM_THREADS")
    if text is None:
        return ok("threads", "OMP_NUM_THREADS is not set; `--threads` decides")
    mend = "`elastane run --threads N` decides for workers; unset OMP_NUM_THREADS to have one place for it"
    return warn("threads", f"OMP_NUM_THREADS={text}", mend)


def examine_loopback() -> Finding:
    """Examine whether processes of this machine can reach each other, by talking to ourselves."""
    mend = "allow TCP on 127.0.0.1 (a firewall or a sandbox is in the way)"
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=2.0) as client:
                peer, _ = server.accept()
                with peer:
                    client.sendall(b"elastane")
                    arrived = peer.recv(8)
    except OSError as error:
        return fail("loopback", str(error), mend)
    if arrived != b"elastane":
        return fail("loopback", f"sent 8 bytes, got {arrived!r}", mend)
    return ok("loopback", f"127.0.0.1 answers (tried port {port})")


def examine_memory_reads() -> Finding:
    """Examine whether workers of this machine may read each other's memory: another process tries ours."""
    text = ctypes.create_string_buffer(os.urandom(16), 16)
    allow_reads_by(os.getpid())
    command = [sys.executable, "-c", _READ_MEMORY, str(os.getpid()), str(ctypes.addressof(text))]
    tried = subprocess.run(command, capture_output=True, check=False)
    if tried.stdout == text.raw:
        return ok("memory reads", "workers of this machine read large tensors from each other's memory")
    reason = tried.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    mend = (
        "jobs run, but large tensors on the CPU go through sockets, at half the speed; in a container allow "
        "it with --cap-add SYS_PTRACE"
    )
    return warn("memory reads", f"not allowed: {reason}", mend)


def examine_host_name() -> Finding:
    """Examine whether the machine's own name has an address: torch looks it up when it builds links."""
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        mend = f'add the line "127.0.1.1 {name}" to /etc/hosts'
        return warn("host name", f"{name}: {error}", mend)
    return ok("host name", f"{name} is {address}")


def examine_home(home: Home) -> Finding:
    """Examine whether jobs can be kept in the home folder, or in the folder in which it will be made."""
    folder = _find_existing(home.path)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"elastane")
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        mend = f"make {folder} writable, or choose another home with --home or {HOME_VARIABLE}"
        return fail("home", f"{home.path}: {error.strerror}", mend)
    found = f"{home.path}, {free_bytes / 1e9:.1f} GB free"
    if free_bytes < MIN_FREE_BYTES:
        mend = f"free some space: saved states need it; or choose another home with --home or {HOME_VARIABLE}"
        return warn("home", found, mend)
    if home.path.exists() and home.path.stat().st_mode & 0o077:
        mend = f"others can read it: chmod 700 {home.path}"
        return warn("home", found, mend)
    return ok("home", found)


def examine_file_system(home: Home) -> Finding:
    """Examine whether the home lies on a local disk, which the embedded store needs."""
    kind = find_file_system(home.path, read_mounts()) or "unknown"
    if kind in NETWORK_FILE_SYSTEMS:
        mend = f"choose a home on a local disk with --home or {HOME_VARIABLE}"
        return fail("file system", f"{kind} (network)", mend)
    return ok("file system", f"{kind} (local)")


def examine_store(home: Home) -> Finding:
    """Examine whether the store opens, and how long a write takes; without a home, in a passing one."""
    mend = "see the message; `mv` a damaged store aside and the next `elastane run` makes a new one"
    try:
        if home.store or (home.path / "store.db").exists():
            latency_s = measure_store(home.store_url)
        else:
            with tempfile.TemporaryDirectory(dir=_find_existing(home.path)) as folder:
                latency_s = measure_store(Home(path=Path(folder)).store_url)
    except (StoreError, OSError) as error:
        return fail("store", str(error), mend)
    found = f"a write takes {latency_s * 1e3:.2g} ms"
    if latency_s > SLOW_STORE_S:
        mend = f"the disk is slow or busy; choose a home on a faster one with --home or {HOME_VARIABLE}"
        return warn("store", found, mend)
    return ok("store", found)


def measure_store(url: str) -> float:
    """Return the median time of a write to a store, in seconds; what was written is deleted again."""
    key = f"{PROBE_PREFIX}{os.getpid()}"
    taken_s = []
    with open_store(url) as store:
        for _ in range(STORE_SAMPLES):
            begun_s = time.perf_counter()
            store.transact(puts=[Put(key=key, value=b"probe")])
            taken_s.append(time.perf_counter() - begun_s)
        store.transact(deletes=[DeleteKey(key=key)])
    return statistics.median(taken_s)


def examine_clock(now_s: float | None = None) -> Finding:
    """Examine the clocks: leases need a monotonic one that all processes share, people a right date."""
    clock = time.get_clock_info("monotonic")
    if not clock.monotonic or "CLOCK_MONOTONIC" not in clock.implementation:
        mend = "run on Linux: leases of several processes need its machine-wide monotonic clock"
        return fail("clock", clock.implementation, mend)
    date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_s))
    if date < "2025":
        mend = "set the clock (timedatectl set-ntp true): times in events would mislead"
        return warn("clock", f"it says {date}", mend)
    return ok("clock", f"monotonic, resolution {clock.resolution:.0e} s; {date}")


def examine_limits() -> Finding:
    """Examine how many files and processes one may have."""
    files, hard_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    found = f"{_show_limit(files)} open files, {_show_limit(processes)} processes"
    if 0 <= files < MIN_OPEN_FILES:
        mend = f"ulimit -n {min(hard_files, 65536) if hard_files > 0 else 65536}"
        return warn("limits", found, mend)
    return ok("limits", found)


def examine_shared_memory(path: Path = Path("/dev/shm")) -> Finding:
    """Examine the shared memory through which data-loading workers pass their batches."""
    if not path.is_dir() or not os.access(path, os.W_OK):
        mend = f"mount a tmpfs at {path}, or use num_workers=0 in data loaders"
        return warn("shared memory", f"no {path}", mend)
    free_bytes = shutil.disk_usage(path).free
    found = f"{free_bytes / 1e6:.0f} MB free in {path}"
    if free_bytes < MIN_SHARED_BYTES:
        mend = "give the container more (docker run --shm-size=1g), or use num_workers=0 in data loaders"
        return warn("shared memory", found, mend)
    return ok("shared memory", found)


def examine_memory() -> Finding:
    """Examine how much memory is free for workers: each holds the whole model."""
    memory = psutil.virtual_memory()
    found = f"{memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB free"
    if memory.available < MIN_FREE_BYTES:
        mend = "end other programs, or run fewer workers: each holds the whole model"
        return warn("memory", found, mend)
    return ok("memory", found)


def ok(name: str, found: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(name=name, verdict=Verdict.OK, found=found)


def warn(name: str, found: str, mend: str) -> Finding:
    """Return a finding that somebody should look at."""
    return Finding(name=name, verdict=Verdict.WARN, found=found, mend=mend)


def fail(name: str, found: str, mend: str) -> Finding:
    """Return a finding that something does not work."""
    return Finding(name=name, verdict=Verdict.FAIL, found=found, mend=mend)


def _find_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _show_limit(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
