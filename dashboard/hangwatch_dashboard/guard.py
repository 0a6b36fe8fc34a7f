"""The gate before every route: names, tokens, origins, rates, and the headers that browsers are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hangwatch_dashboard.auth import COOKIE, SAFE, Role, from_another_page, host_is_ours, role_of
from hangwatch_dashboard.bodies import BodyError, kind_of
from hangwatch_dashboard.config import Config
from hangwatch_dashboard.limits import Rate

OPEN = ("/healthz", "/readyz", "/api/v1/session")
INGEST = "/api/v1/ingest/"
CONTENT_SECURITY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Gate:
    """Which requests are let in, and what browsers are told. One for all layers, which share its rates."""

    def __init__(self, config: Config, clock: Callable[[], float]) -> None:
        self._config, self._clock = config, clock
        per_s = config.limits.requests_per_s
        self._rate = Rate(per_s, burst=4 * per_s)
        self._wrong = Rate(1.0, burst=20)  # wrong tokens of one address
        self._headers = dict(HEADERS)
        if config.certificate:
            self._headers["strict-transport-security"] = "max-age=31536000"

    def admit(self, scope: Scope, headers: Mapping[str, str]) -> Role:
        """The role of a request. Raises BodyError for one that is refused."""
        path, config, now = scope["path"], self._config, self._clock()
        client = (scope.get("client") or ("?",))[0]
        if not host_is_ours(config, headers.get("host", "")):
            raise BodyError(421, "this dashboard answers to loopback names only")
        role = role_of(config, headers, _cookie(headers), now)
        if scope["method"] not in SAFE:
            _check_change(scope["method"], headers)
        if path.startswith(INGEST):
            self._check(role, (Role.INGEST,), client, now)
        else:
            if not path.startswith("/assets/"):
                self._rate.check(client, now)
            if path not in OPEN and (path.startswith("/api/") or path == "/metrics"):
                allowed = (Role.ADMIN,) if scope["method"] == "DELETE" else (Role.READ, Role.ADMIN)
                self._check(role, allowed, client, now)
        return role

    def headers(self, path: str) -> dict[str, str]:
        """What every answer to `path` says besides its own headers."""
        return self._headers | ({"cache-control": "no-store"} if path.startswith("/api/") else {})

    def telling(self, scope: Scope, send: Send) -> Send:
        """`send`, with those headers where the answer does not say otherwise."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers(scope["path"]).items():
                    headers.setdefault(name, value)
            await send(message)

        return sending

    def _check(self, role: Role, allowed: tuple[Role, ...], client: str, now: float) -> None:
        if role in allowed or not self._config.tokens_required:
            return
        if role is Role.NOBODY:
            self._wrong.check(client, now)
            raise BodyError(401, "a token is needed: Authorization: Bearer ...")
        raise BodyError(403, f"this token may {role}; {' or '.join(allowed)} is needed")


class Guard:
    """Wraps the application. Refuses, or passes on with the role in `scope["state"]["role"]`."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        telling = self._gate.telling(scope, send)
        try:
            role = self._gate.admit(scope, Headers(scope=scope))
        except BodyError as error:
            await refusal(error)(scope, receive, telling)
            return
        scope.setdefault("state", {})["role"] = role
        await self._app(scope, receive, telling)


def refusal(error: BodyError) -> JSONResponse:
    """The answer to a request that is not taken."""
    headers = {"connection": "close"} if error.status in (408, 413) else {}
    if error.status in (429, 503):
        headers["retry-after"] = "1"
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse({"error": str(error)}, error.status, headers)


def _check_change(method: str, headers: Mapping[str, str]) -> None:
    """Refuses what a page elsewhere could make a browser send. Raises BodyError."""
    if from_another_page(headers):
        raise BodyError(403, "requests from other pages are refused")
    if (
        method != "DELETE" and kind_of(headers) != "application/json"
    ):  # also without a body: forms have none to speak of
        raise BodyError(415, "Content-Type must be application/json")


def _cookie(headers: Mapping[str, str]) -> str:
    text = headers.get("cookie", "")
    if not text:
        return ""
    try:
        found = SimpleCookie(text).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""
