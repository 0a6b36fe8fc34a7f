"""Addresses of dashboards as they may be shown, and whether a token may travel to them."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit


def split(address: str) -> SplitResult:
    """The parts of an address, which may lack its scheme. Raises ValueError."""
    return urlsplit(address if "://" in address else f"http://{address}")


def shown(address: str) -> str:
    """The address without user, password, query and fragment: those may be secrets."""
    scheme, marks, rest = address.partition("://") if "://" in address else ("", "", address)
    rest = rest.partition("?")[0].partition("#")[0]
    place, slash, path = rest.partition("/")
    if "@" in rest:
        # A password with a slash in it is no valid address, and is not shown all the same.
        place, slash, path = rest.rpartition("@")[2].partition("/")
    return f"{scheme}{marks}{place}{slash}{path}"


def exposes_token(address: str) -> bool:
    """Whether what is sent there travels in the clear over a network: plain http to another host."""
    try:
        parts = split(address)
    except ValueError:
        return False
    return parts.scheme == "http" and not _is_local(parts.hostname or "")


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
