"""Find the home folder and the store: flag, then environment, then default, resolved once per command.

Below the command line nothing reads the environment for them.
"""

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

from elastane.model.errors import ConfigError, JobNotFoundError
from elastane.store.base import Store
from elastane.store.etcd_address import split_credentials
from elastane.store.open import open_store

HOME_VARIABLE = "ELASTANE_HOME"
STORE_VARIABLE = "ELASTANE_STORE"
DEFAULT_HOME = "~/.elastane"
STORE_FILE = "store.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Say where jobs live on this machine, and where they are known."""

    path: Path
    store: str = ""
    """URL of a store elsewhere; "" for the file in this home."""

    @property
    def store_url(self) -> str:
        """Return the URL of the store."""
        return self.store or f"sqlite://{self.path / STORE_FILE}"


def resolve_home(
    flag: Path | None, store: str | None = None, environment: MutableMapping[str, str] = os.environ
) -> Home:
    """Return the home and store that flags, the environment or the defaults name; they need not exist yet.

    A user and password in the store's URL move to the environment, which the processes of the job inherit:
    the URL gets into their arguments, records and messages.

    Raises:
        ConfigError: the path exists and is no folder, or names a user that does not exist.
        StoreAddressError: the store's URL cannot be read.
    """
    text = flag or environment.get(HOME_VARIABLE) or DEFAULT_HOME
    try:
        path = Path(text).expanduser().resolve()
    except RuntimeError as error:
        raise ConfigError(
            f"the home folder {text} cannot be found ({error}); give one with --home"
        ) from error
    if path.exists() and not path.is_dir():
        raise ConfigError(f"the home folder {path} is no folder; give another with --home or {HOME_VARIABLE}")
    url, secrets = split_credentials(store or environment.get(STORE_VARIABLE) or "", environment)
    environment.update(secrets)
    return Home(path=path, store=url)


def make_home(home: Home) -> None:
    """Make the home folder, for its owner only.

    Raises:
        OSError: it cannot be made.
    """
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_home(home: Home) -> Store:
    """Open the store of a home in which something must have run before.

    Raises:
        JobNotFoundError: nothing ever ran there.
        StoreError: the store cannot be used.
    """
    if not home.store and not (home.path / STORE_FILE).exists():
        raise JobNotFoundError(
            f"no job has run yet in {home.path}; start one with `elastane run`, "
            f"or name another home with --home or {HOME_VARIABLE}"
        )
    return open_store(home.store_url, create=False)
