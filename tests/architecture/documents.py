"""Read the repository's documents: their links, headings and examples."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def find_blocks(path: Path, language: str) -> list[str]:
    """Return the code blocks of one language, in order."""
    return [body for name, body in _FENCE.findall(path.read_text()) if name == language]


def find_links(path: Path) -> list[str]:
    """Return the targets of all links, those to other sites left out."""
    prose = _FENCE.sub("", path.read_text())
    return [target for target in _LINK.findall(prose) if not re.match(r"[a-z]+:", target)]


def find_anchors(path: Path) -> set[str]:
    """Return the anchors of all headings, as GitHub makes them."""
    prose = _FENCE.sub("", path.read_text())
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose))
    return {text.strip().replace(" ", "-") for text in words}
