"""Bodies of requests: read with limits, decompressed with limits, and turned into records strictly.

pydantic reads the records five times faster than `hangwatch.wire.codec`, which matters at a thousand batches a second;
a test holds the two to the same answers.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.types import Receive

T = TypeVar("T")

BODY_S = 15.0  # until all of a body must be here
PAUSE_S = 5.0  # between two pieces of it
LEAST_ROOM = 64 << 10  # bytes that a request costs besides its body, generously

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class BodyError(Exception):
    """A body that is not taken. `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Reader(Generic[T]):
    """Reads one kind of record from JSON, strictly: wrong types, unknown fields and infinities are refused."""

    def __init__(self, kind: type[T]) -> None:
        self._adapter: TypeAdapter[tuple[T]] = strict_adapter(kind)

    def read(self, body: bytes) -> T:
        """The record in `body`. Raises BodyError: 400 for what is not JSON, 422 for another record.

        The parser stops at 200 levels, so that no nesting can exhaust the stack.
        """
        try:
            return self._adapter.validate_json(b"[" + body + b"]")[0]
        except ValidationError as error:
            raise _refusal(error) from None
        except ValueError as error:
            raise BodyError(400, f"not JSON: {error}") from None


def strict_adapter(kind: type[T]) -> TypeAdapter[tuple[T]]:
    """pydantic's reader of a list of one record: the list carries the strictness, which a plain dataclass cannot."""
    wrapped: Any = tuple[kind]  # type: ignore[valid-type]
    return TypeAdapter(wrapped, config=STRICT)


def _refusal(error: ValidationError) -> BodyError:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    status = 400 if first["type"] == "json_invalid" else 422
    return BodyError(status, f"{where or 'body'}: {first['msg']}"[:500])


@dataclass(frozen=True)
class Raw:
    """A body as it came. `limit` is the most that it may be in the clear, in bytes."""

    data: bytes
    compressed: bool
    limit: int

    def in_the_clear(self) -> bytes:
        """Raises BodyError for what cannot be decompressed, or not into so few bytes."""
        return gunzip(self.data, self.limit) if self.compressed else self.data

    @property
    def clear_size(self) -> int:
        """The bytes that it has in the clear: as its sender says, who is held to that, and no more than the limit."""
        return min(_told_size(self.data), self.limit) if self.compressed else len(self.data)

    def packed(self) -> bytes:
        """The body compressed, as it is kept."""
        return self.data if self.compressed else zlib.compress(self.data, 1)


async def read_body(request: Request, limit: int) -> bytes:
    """The body in the clear. Raises BodyError for one that is too large, in either form."""
    return (await read_raw(request.headers, request.receive, limit)).in_the_clear()


async def read_raw(headers: Mapping[str, str], receive: Receive, limit: int) -> Raw:
    """The body as it came. Raises BodyError."""
    _check_headers(headers, limit)
    data = await _read_limited(receive, limit)
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise BodyError(415, "the only Content-Encoding taken is gzip")
    return Raw(data, encoding == "gzip", limit)


def room_for(headers: Mapping[str, str], limit: int) -> int:
    """The most bytes that a body may have by its headers, with the request around it.

    The server lets no body be longer than its Content-Length. Raises BodyError for headers that are refused.
    """
    _check_headers(headers, limit)
    length = _length(headers)
    return max(LEAST_ROOM, limit if length is None else length)


def _length(headers: Mapping[str, str]) -> int | None:
    """Content-Length; None where it does not say how long the body is."""
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
        return None
    return int(length) if len(length) <= 20 else sys.maxsize  # leading zeros, too: no client of ours sends them


def kind_of(headers: Mapping[str, str]) -> str:
    """The media type of a body, without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _check_headers(headers: Mapping[str, str], limit: int) -> None:
    if kind_of(headers) != "application/json":
        # Not only tidiness: a form of a strange page can send text/plain to loopback, but not this.
        raise BodyError(415, "Content-Type must be application/json")
    length = _length(headers)
    if length is not None and length > limit:
        raise BodyError(413, f"larger than {limit} bytes")


async def _read_limited(receive: Receive, limit: int) -> bytes:
    """The whole body. Raises BodyError for one that is too large, cut off, or sent too slowly."""
    try:
        async with asyncio.timeout(BODY_S):
            return await _read_pieces(receive, limit)
    except TimeoutError:
        raise BodyError(408, "the body did not arrive in time") from None


async def _read_pieces(receive: Receive, limit: int) -> bytes:
    pieces, size, more = [], 0, True
    while more:
        async with asyncio.timeout(PAUSE_S):
            message = await receive()
        if message["type"] == "http.disconnect":  # a watchdog that ends in the middle of a body is no trouble of ours
            raise BodyError(400, "cut off")
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise BodyError(413, f"larger than {limit} bytes")
        pieces.append(piece)
        more = message.get("more_body", False)
    return b"".join(pieces)


def gunzip(raw: bytes, limit: int) -> bytes:
    """One gzip member, never more than `limit` bytes of it in memory. Raises BodyError."""
    decompressor = zlib.decompressobj(wbits=31)
    most = min(limit, _told_size(raw))
    try:
        body = decompressor.decompress(raw, most + 1)
    except zlib.error as error:
        raise BodyError(400, f"not gzip: {error}") from None
    if len(body) > limit:
        raise BodyError(413, f"larger than {limit} bytes when decompressed")
    if len(body) > most or not decompressor.eof or decompressor.unused_data:
        raise BodyError(400, "not one whole gzip member")
    return body


def _told_size(packed: bytes) -> int:
    """The size in the clear, less what is above 4 GiB, that stands at the end of a gzip member (RFC 1952)."""
    return int.from_bytes(packed[-4:], "little")
