"""The demonstration is no part of the installed package: it is found beside the tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
