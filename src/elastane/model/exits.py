"""Exit codes with which the end of a worker process says why it came."""

EXIT_FENCED = 75
"""It stopped by itself because it was cut off and the others go on without it (EX_TEMPFAIL of sysexits.h)."""
EXIT_NOT_STARTED = 127
"""Noted for a worker whose process could not be made; what shells report for such."""
