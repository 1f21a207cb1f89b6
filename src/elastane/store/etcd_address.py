"""Read what an etcd URL says: endpoints, namespace, TLS files, user, request time-out. Pure.

    etcd://host1:port1,host2:port2/namespace?ca=ca.pem&cert=me.pem&key=me-key.pem&timeout=1.0
 `etcds://` asks for TLS with the certificate authorities that the machine trusts; so does any TLS file. User
and password may stand before the hosts, but better in the environment: URLs end up in records and in `ps`.
What is shown or kept of an address is its `url`, which holds no secret.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from elastane.model.errors import StoreAddressError

USER_VARIABLE = "ELASTANE_ETCD_USER"
PASSWORD_VARIABLE = "ELASTANE_ETCD_PASSWORD"
SCHEMES = ("etcd", "etcds")
DEFAULT_PORT = 2379  # IANA's port for etcd clients
DEFAULT_NAMESPACE = "elastane"
"""Keys of others in the same etcd stay untouched, even by a deletion of everything."""
DEFAULT_TIMEOUT_S = 1.0
"""A third of the usual lease: two calls may fail before a worker must stop."""
MIN_TIMEOUT_S, MAX_TIMEOUT_S = 0.05, 60.0
"""Below, healthy clusters whose disks are slow would look dead; above, nobody would call it a time-out."""

_PARAMETERS = ("ca", "cert", "key", "timeout")
_USER_INFO = re.compile(r"(?<=:)//[^/?#]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Name one member of an etcd cluster."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Name the PEM files of a TLS connection; without `ca`, the machine's authorities are trusted."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Hold a user and its password; the latter never shows in a repr."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAddress:
    """Say where an etcd store is and how to be let in.

    `timeout_s` bounds every call; `namespace` is a key prefix, without its closing slash.
    """

    endpoints: tuple[Endpoint, ...]
    namespace: str = DEFAULT_NAMESPACE
    tls: TlsFiles | None = None
    credentials: Credentials | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S

    @property
    def url(self) -> str:
        """Return a URL of the same store without user and password: for messages and records."""
        scheme = "etcd" if self.tls is None else "etcds"
        files = {} if self.tls is None else {"ca": self.tls.ca, "cert": self.tls.cert, "key": self.tls.key}
        parameters = {name: str(path) for name, path in files.items() if path is not None}
        if self.timeout_s != DEFAULT_TIMEOUT_S:
            parameters["timeout"] = f"{self.timeout_s:g}"
        hosts = ",".join(map(str, self.endpoints))
        return f"{scheme}://{hosts}/{quote(self.namespace)}" + (
            f"?{urlencode(parameters, safe='/')}" if parameters else ""
        )


def hide_credentials(url: str) -> str:
    """Return a URL, of any scheme and in any state, without what stands before an @."""
    return _USER_INFO.sub("//", url)


def is_etcd(url: str) -> bool:
    """Return whether the scheme of a store URL is one of etcd's."""
    return url.partition("://")[0] in SCHEMES


def split_credentials(url: str, environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return a store URL without its secrets, and the environment variables that hold them instead.

    For whoever hands the URL on to records or other processes. Raises StoreAddressError like `parse_address`.
    """
    if not is_etcd(url):
        return url, {}
    credentials = parse_address(url, environment).credentials
    if credentials is None:
        return url, {}
    return hide_credentials(url), {USER_VARIABLE: credentials.user, PASSWORD_VARIABLE: credentials.password}


def parse_address(url: str, environment: Mapping[str, str]) -> EtcdAddress:
    """Return what an etcd URL and the environment say. Raises StoreAddressError, without showing a secret."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreAddressError("an etcd URL cannot be read; write etcd://host:port") from error
    hosts = parts.netloc.rpartition("@")[2]
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    if any("@" in text for text in (parts.path, parts.fragment, *parameters)):
        raise StoreAddressError(  # shows nothing: what seems to be a host may be half of a password
            "an etcd URL has an @ behind its hosts; write / ? # @ in a password as %2F %3F %23 %40, "
            f"or better set {PASSWORD_VARIABLE} in the environment"
        )
    unknown = sorted(parameters.keys() - set(_PARAMETERS))
    if unknown or parts.fragment:
        raise _refuse(url, f"has {unknown or 'a #fragment'}; known parameters are {', '.join(_PARAMETERS)}")
    return EtcdAddress(
        endpoints=tuple(_parse_endpoint(url, text) for text in hosts.split(",")),
        namespace=unquote(parts.path).strip("/") or DEFAULT_NAMESPACE,
        tls=_parse_tls(url, parts.scheme, parameters),
        credentials=_parse_credentials(parts.netloc, environment),
        timeout_s=_parse_timeout(url, parameters.get("timeout")),
    )


def _parse_endpoint(url: str, text: str) -> Endpoint:
    match = re.fullmatch(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<name>[^\[\]:\s]+))(?::(?P<port>\d+))?", text)
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 1 << 16:
        raise _refuse(url, f"has the host {text!r}; write etcd://host:port or etcd://host1:port1,host2:port2")
    return Endpoint(host=match["v6"] or match["name"], port=port)


def _parse_tls(url: str, scheme: str, parameters: Mapping[str, str]) -> TlsFiles | None:
    files = {name: Path(parameters[name]) for name in ("ca", "cert", "key") if name in parameters}
    if ("cert" in files) != ("key" in files):
        raise _refuse(url, "names only one of cert and key; a client certificate needs both")
    return TlsFiles(**files) if files or scheme == "etcds" else None


def _parse_credentials(netloc: str, environment: Mapping[str, str]) -> Credentials | None:
    user_info, at, _ = netloc.rpartition("@")
    user, colon, password = user_info.partition(":")
    if not at:
        user, colon = quote(environment.get(USER_VARIABLE, ""), safe=""), ""
    if not user:
        return None
    secret = unquote(password) if colon else environment.get(PASSWORD_VARIABLE)
    if secret is None:
        raise StoreAddressError(
            f"the etcd user {unquote(user)!r} has no password; set {PASSWORD_VARIABLE} in the environment"
        )
    return Credentials(user=unquote(user), password=secret)


def _parse_timeout(url: str, text: str | None) -> float:
    if text is None:
        return DEFAULT_TIMEOUT_S
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = 0.0
    if not MIN_TIMEOUT_S <= timeout_s <= MAX_TIMEOUT_S:
        raise _refuse(
            url, f"has timeout={text}; give seconds between {MIN_TIMEOUT_S:g} and {MAX_TIMEOUT_S:g}"
        )
    return timeout_s


def _refuse(url: str, complaint: str) -> StoreAddressError:
    return StoreAddressError(f"the store URL {hide_credentials(url)} {complaint}")
