"""Note when each step ended and what processor time the process had used by then."""

import json
import time
from pathlib import Path


class Stamps:
    """Collect the clocks of one rank."""

    def __init__(self) -> None:
        self._at_s: list[float] = []
        self._cpu_s: list[float] = []

    def note(self) -> None:
        """Note that a step has ended."""
        self._at_s.append(time.time())
        self._cpu_s.append(time.process_time())

    def save(self, folder: Path, number: int) -> None:
        """Write the clocks of rank `number`."""
        (folder / f"rank{number}.json").write_text(json.dumps({"at_s": self._at_s, "cpu_s": self._cpu_s}))
