"""The preloaded parent: a process that has imported what workers need and forks them on request.

`python -m elastane.agent.zygote N`, with its end of a socket pair as descriptor N; it ends when the agent's
end closes.

Rules of the file. One thread only, and CUDA is never initialised: neither survives a fork. A worker is forked
through a middleman that ends at once, so it becomes a child of the agent (a subreaper), which alone collects
its exit: this process has nothing to reap or to report, and its own death harms no worker.
"""

import gc
import os
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

import msgspec

from elastane.agent.child import run_worker
from elastane.agent.messages import (
    MAX_FRAME_BYTES,
    Answer,
    Fork,
    Forked,
    ForkFailed,
    Preload,
    Preloaded,
    Request,
)
from elastane.agent.preload import find_preloads, preload

_ANSWERS = msgspec.msgpack.Encoder()
_REQUESTS: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)


def main() -> None:
    """Preload, then fork workers until the agent closes its end."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    while True:
        frame, descriptors, _, _ = socket.recv_fds(channel, MAX_FRAME_BYTES, 1)
        if not frame:
            return
        request = _REQUESTS.decode(frame)
        if isinstance(request, Preload):
            _preload(channel, request)
        else:
            _fork(channel, request, descriptors[0])
            os.close(descriptors[0])


def _preload(channel: socket.socket, request: Preload) -> None:
    """Import everything asked for and all that the script will, and say what came of it."""
    began_s = time.monotonic()
    done, failed = preload((*request.modules, *find_preloads(Path(request.script))))
    torch = sys.modules.get("torch")
    # Forked workers share these objects, which live for ever; else a collection in one would copy all pages.
    gc.collect()
    gc.freeze()
    answer = Preloaded(
        modules=len(done),
        failed=failed,
        took_s=time.monotonic() - began_s,
        threads=len(os.listdir("/proc/self/task")),
        cuda=torch is not None and torch.cuda.is_initialized(),
    )
    channel.send(_ANSWERS.encode(answer))


def _fork(channel: socket.socket, request: Fork, log_descriptor: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        middleman = os.fork()
    except OSError as error:
        channel.send(_ANSWERS.encode(_refusal(request, error)))
        return
    if middleman > 0:
        os.waitpid(middleman, 0)
        return
    try:
        worker = os.fork()
    except OSError as error:
        channel.send(_ANSWERS.encode(_refusal(request, error)))
        os._exit(1)
    if worker > 0:
        os._exit(0)
    _begin_worker(channel, request, log_descriptor)


def _refusal(request: Fork, error: OSError) -> Answer:
    return ForkFailed(worker=request.context.worker, why=f"fork: {error}")


def _begin_worker(channel: socket.socket, request: Fork, log_descriptor: int) -> NoReturn:
    """Make the forked process look as if it had been started by itself, and run the worker in it."""
    began_at_s = time.monotonic()
    os.setsid()
    channel.send(_ANSWERS.encode(Forked(worker=request.context.worker, pid=os.getpid())))
    channel.close()
    # Standard output and error are unbuffered (python -u) and bound to these descriptors, not to a file.
    os.dup2(log_descriptor, 1)
    os.dup2(log_descriptor, 2)
    os.close(log_descriptor)
    _draw_random_state()
    sys.argv = [request.context.script, *request.context.arguments]
    run_worker(request.context, request.entry, began_at_s)


def _draw_random_state() -> None:
    """Seed each random generator anew, as in a fresh process (`random` does so by itself after a fork)."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        torch.default_generator.seed()
    if numpy is not None:
        numpy.random.seed()


if __name__ == "__main__":
    main()
