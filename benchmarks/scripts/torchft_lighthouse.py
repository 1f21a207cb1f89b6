"""Run torchft's lighthouse, the process that counts replicas, until ended from outside."""

import argparse
import signal

from torchft.coordination import LighthouseServer

JOIN_TIMEOUT_MS = 1000
"""How long a new replica is waited for; at the default of 100 ms the first one may begin alone."""


def main() -> None:
    """Serve; what is not given is at torchft's defaults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    server = LighthouseServer(bind=f"[::]:{options.port}", min_replicas=1, join_timeout_ms=JOIN_TIMEOUT_MS)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.shutdown()


if __name__ == "__main__":
    main()
