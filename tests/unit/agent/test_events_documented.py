"""docs/events.md names every event that agents write."""

import re
from pathlib import Path

import elastane.agent

SOURCES = Path(elastane.agent.__file__).parent
DOCUMENT = Path(__file__).parents[3] / "docs" / "events.md"
WRITTEN = re.compile(r"""(?:\.log\(\s*|kind=)"([a-z_]+)\"""")


def test_every_event_of_an_agent_is_documented() -> None:
    written = {kind for path in SOURCES.glob("*.py") for kind in WRITTEN.findall(path.read_text())}
    rows = re.findall(r"^\| (`.*?) \|", DOCUMENT.read_text(), flags=re.MULTILINE)
    documented = {kind for row in rows for kind in re.findall(r"`([a-z_]+)`", row)}
    assert {"agent_started", "preloaded", "worker_exited", "stopped"} <= written
    assert written - documented == set()
