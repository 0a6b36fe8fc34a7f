"""Roles and permissions: tokens, the page's session cookie, and requests that other pages make a browser send."""

from __future__ import annotations

import functools
import hashlib
import hmac
from collections.abc import Mapping
from enum import StrEnum
from urllib.parse import SplitResult, urlsplit

from hangwatch_dashboard.config import Config, is_loopback

COOKIE = "hangwatch"
SESSION_S = 30 * 86_400
SAFE = ("GET", "HEAD", "OPTIONS")


class Role(StrEnum):
    """What a request may do. Sending and reading are apart: a sender must not be able to read."""

    NOBODY = "nobody"
    INGEST = "ingest"
    READ = "read"
    ADMIN = "admin"


def role_of(config: Config, headers: Mapping[str, str], cookie: str, now: float) -> Role:
    """The role that a request's token or cookie gives."""
    if not config.tokens_required:
        return Role.ADMIN
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return role_of_token(config, token.strip())
    return role_of_session(config, cookie, now) if cookie else Role.NOBODY


def role_of_token(config: Config, token: str) -> Role:
    """The role of a token. Every comparison is made, and takes the same time whatever the token."""
    given = token.encode("utf-8", "replace")
    found = Role.NOBODY
    for role, known in _tokens(config).items():
        if hmac.compare_digest(given, known.encode()):
            found = role
    return found


def new_session(config: Config, role: Role, now: float) -> str:
    """A cookie that proves, on every dashboard process, that its bearer had the token; it does not contain it."""
    expires = int(now) + SESSION_S
    return f"{role}.{expires}.{_mac(_tokens(config)[role], role, expires)}"


def role_of_session(config: Config, cookie: str, now: float) -> Role:
    """The role of a session cookie; nobody's if it is forged or has expired."""
    name, _, rest = cookie.partition(".")
    expires, _, mac = rest.partition(".")
    if name not in (Role.READ, Role.ADMIN) or not (expires.isascii() and expires.isdigit() and len(expires) < 15):
        return Role.NOBODY
    role = Role(name)
    token = _tokens(config).get(role)
    if token is None or not hmac.compare_digest(mac.encode(), _mac(token, role, int(expires)).encode()):
        return Role.NOBODY
    return role if int(expires) > now else Role.NOBODY


def _tokens(config: Config) -> dict[Role, str]:
    tokens = {Role.INGEST: config.ingest_token, Role.READ: config.read_token, Role.ADMIN: config.admin_token}
    return {role: token for role, token in tokens.items() if token}


def _mac(token: str, role: Role, expires: int) -> str:
    return hmac.new(token.encode(), f"hangwatch session {role} {expires}".encode(), hashlib.sha256).hexdigest()


def host_is_ours(config: Config, host: str) -> bool:
    """Whether the Host header can be meant for us.

    On loopback without tokens a page elsewhere could let its own name point to 127.0.0.1 and read everything (DNS
    rebinding); so there only loopback names are answered. Elsewhere the token protects.
    """
    if config.tokens_required or not config.loopback:
        return True
    return _names_loopback(host)


@functools.lru_cache(maxsize=64)  # every batch asks for the same name or two
def _names_loopback(host: str) -> bool:
    return is_loopback(_split(f"//{host}").hostname or "")


def from_another_page(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that a page of another origin made it send this request."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and _split(origin).netloc != headers.get("host", "")


def _split(address: str) -> SplitResult:
    """`urlsplit`, with nothing in it for what is no address."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")
