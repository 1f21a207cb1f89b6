"""The policies that users can name, each with how to make it.

A new policy is one line here. Knows how to build policies from settings; decides nothing itself.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from elastane.model.errors import ConfigError
from elastane.policy.afs import AfsL, AfsP
from elastane.policy.backfill import FifoBackfill
from elastane.policy.base import Policy
from elastane.policy.easyscale import EasyScale
from elastane.policy.elastane import Elastane
from elastane.policy.elastic_tiresias import ElasticTiresias
from elastane.policy.even import Even
from elastane.policy.fifo import Fifo, FifoSkip
from elastane.policy.gittins import Gittins
from elastane.policy.optimus import Optimus
from elastane.policy.srtf import Srsf, Srtf
from elastane.policy.static import Static
from elastane.policy.tiresias import Tiresias

_KNOWN: tuple[type[Policy], ...] = (
    *(Fifo, FifoSkip, FifoBackfill, Static),
    *(Srtf, Srsf, Tiresias, Gittins),
    *(ElasticTiresias, Even, EasyScale, AfsL, AfsP, Optimus, Elastane),
)

POLICIES: dict[str, type[Policy]] = {kind.name: kind for kind in _KNOWN}
"""Every known policy class by the name that users type."""


def make_policy(name: str, **settings: object) -> Policy:
    """Return the policy called `name` with `settings` in place of its defaults.

    Raises ConfigError with the known names, or with the settings that the policy has.
    """
    if name not in POLICIES:
        raise ConfigError(f"no policy is called {name!r}; known: {', '.join(POLICIES)}")
    kind = POLICIES[name]
    try:
        return kind(**settings)
    except TypeError as error:
        settable: list[str] = [field.name for field in fields(kind)] if is_dataclass(kind) else []
        known = ", ".join(settable) or "none"
        raise ConfigError(
            f"policy {name!r} does not take {sorted(settings)}; its settings: {known}"
        ) from error
