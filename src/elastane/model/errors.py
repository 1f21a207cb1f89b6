"""The one tree of errors that elastane raises on purpose.

Every message says what happened, with which values, and what to do about it.
"""

from __future__ import annotations


class ElastaneError(Exception):
    """Base class of every error that elastane raises on purpose."""


class ConfigError(ElastaneError):
    """Report input that cannot be used as it stands: a spec, a trace, a flag."""


class PlanError(ElastaneError):
    """Report a plan that cannot be carried out: too many devices, below a minimum, an unknown job."""
