"""Entry of a worker process that is started without a preloaded parent.

`python -m elastane.agent.cold ENTRY`, with the context in the environment.
"""

import time

BEGAN_AT_S = time.monotonic()  # before anything else is imported, which takes its time

import os  # noqa: E402
import sys  # noqa: E402

from elastane.agent.child import run_worker  # noqa: E402
from elastane.worker.context import CONTEXT_VARIABLE, current_context  # noqa: E402


def main() -> None:
    """Take the context out of the environment, so that the script's own children do not see it, and run."""
    context = current_context()
    if context is None:
        sys.stderr.write(f"{CONTEXT_VARIABLE} is not set: this program is started by an elastane agent\n")
        sys.exit(2)
    del os.environ[CONTEXT_VARIABLE]
    run_worker(context, sys.argv[1], BEGAN_AT_S)


if __name__ == "__main__":
    main()
