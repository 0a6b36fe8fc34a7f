"""What the dashboard is told when it starts, and what it refuses."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class ConfigError(ValueError):
    """A configuration with which the dashboard does not start. The message says what to do."""


@dataclass(frozen=True)
class Limits:
    """What one request or one client may cost. Sizes are bytes, before and after decompression."""

    batch_bytes: int = 1 << 20
    capture_bytes: int = 32 << 20
    ranks_per_node: int = 1024
    nodes_per_job: int = 16_384
    jobs: int = 256  # in memory at once
    requests_per_s: float = 50.0  # of one client address, reading
    ingest_per_node_s: float = 20.0  # batches of one node
    streams: int = 256
    captures_per_minute: int = 30  # of one job, on demand


@dataclass(frozen=True)
class Config:
    """The knobs of `hangwatch dashboard`. Times are seconds. `database` is a path or a URL."""

    host: str = "127.0.0.1"
    port: int = 8470
    database: str = ""
    ingest_token: str = field(default="", repr=False)
    read_token: str = field(default="", repr=False)
    admin_token: str = field(default="", repr=False)
    certificate: str = ""
    key: str = field(default="", repr=False)
    public_url: str = ""  # what links in messages begin with
    notify: tuple[str, ...] = field(default=(), repr=False)  # apprise URLs: they hold secrets
    trusted_proxies: tuple[str, ...] = ()  # addresses and networks whose X-Forwarded-For is believed
    keep_days: float = 30.0
    keep_incidents_days: float = 365.0
    static: Path = Path(__file__).parent / "static"
    limits: Limits = field(default_factory=Limits)

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def tokens_required(self) -> bool:
        return bool(self.ingest_token or self.read_token)

    @property
    def url(self) -> str:
        """The address that people are told."""
        if self.public_url:
            return self.public_url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"

    def check(self) -> None:
        """Raises ConfigError for what would be open to strangers, or cannot work."""
        if bool(self.ingest_token) != bool(self.read_token):
            raise ConfigError("set both tokens, HANGWATCH_INGEST_TOKEN and HANGWATCH_READ_TOKEN, or neither")
        if self.admin_token and not self.read_token:
            raise ConfigError("an admin token without an ingest and a read token protects nothing; set all three")
        if not self.loopback and not self.tokens_required:
            raise ConfigError(
                f"{self.host} can be reached by others: set HANGWATCH_INGEST_TOKEN and HANGWATCH_READ_TOKEN, "
                "or stay on 127.0.0.1"
            )
        tokens = [token for token in (self.ingest_token, self.read_token, self.admin_token) if token]
        if any(len(token) < 16 for token in tokens):
            raise ConfigError("a token must have 16 characters or more (e.g. the output of: openssl rand -hex 24)")
        if any(not token.isascii() or not token.isprintable() for token in tokens):
            raise ConfigError("a token must consist of printable ASCII characters: it travels in a header")
        if len(set(tokens)) < len(tokens):
            raise ConfigError("the tokens must differ: a sender must not be able to read")
        if bool(self.certificate) != bool(self.key):
            raise ConfigError("TLS needs both a certificate and a key")
        for path in filter(None, (self.certificate, self.key)):
            if not Path(path).is_file():
                raise ConfigError(f"no such file: {path}")
        for proxy in self.trusted_proxies:
            if not is_network(proxy):  # also "*": every client could then choose the address that it is counted under
                raise ConfigError(f"{proxy} is no address or network of a proxy (e.g. 127.0.0.1 or 10.1.0.0/16)")


def tokens_from(environment: Mapping[str, str]) -> dict[str, str]:
    """The tokens in HANGWATCH_{INGEST,READ,ADMIN}_TOKEN, or in the files that ..._TOKEN_FILE name."""
    found = {}
    for name in ("ingest_token", "read_token", "admin_token"):
        variable = f"HANGWATCH_{name.upper()}"
        if path := environment.get(f"{variable}_FILE"):
            found[name] = Path(path).read_text().strip()
        elif token := environment.get(variable):
            found[name] = token
    return found


def notify_from(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The apprise URLs in HANGWATCH_NOTIFY (separated by blanks), or in the file that HANGWATCH_NOTIFY_FILE names."""
    if path := environment.get("HANGWATCH_NOTIFY_FILE"):
        return tuple(Path(path).read_text().split())
    return tuple(environment.get("HANGWATCH_NOTIFY", "").split())


def proxies_from(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The proxies in HANGWATCH_TRUSTED_PROXY, separated by blanks or commas."""
    return tuple(environment.get("HANGWATCH_TRUSTED_PROXY", "").replace(",", " ").split())


def default_database(environment: Mapping[str, str] = os.environ) -> str:
    """Where the embedded database lies by default."""
    home = environment.get("XDG_DATA_HOME") or str(Path("~/.local/share").expanduser())
    return str(Path(home) / "hangwatch" / "dashboard.db")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_network(text: str) -> bool:
    """Whether `text` is an IP address or a network such as 10.1.0.0/16."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True
