"""The application: routes, gate and life of the service."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import Message, Receive, Scope, Send

from hangwatch.version import __version__
from hangwatch_dashboard.bodies import BodyError
from hangwatch_dashboard.config import Config
from hangwatch_dashboard.guard import Gate, Guard, refusal
from hangwatch_dashboard.judge import Diagnose
from hangwatch_dashboard.notify import Notifier
from hangwatch_dashboard.openapi import completed
from hangwatch_dashboard.page import Page
from hangwatch_dashboard.routes import captures, events, groups, incidents, ingest, jobs, system
from hangwatch_dashboard.service import Service
from hangwatch_dashboard.store.writer import StoreBusyError

log = logging.getLogger(__name__)
ROUTERS = (*(part.router for part in (ingest, captures, jobs, incidents, groups, events, system)), system.root)


class Application(FastAPI):
    """FastAPI, with a way in for batches that spares them its layers, and with HEAD for whatever has GET."""

    direct: ingest.Direct

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if ingest.is_batch(scope):
            scope["app"] = self
            await self.direct(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "HEAD":
            await super().__call__({**scope, "method": "GET", events.HEAD: True}, receive, _without_body(send))
        else:
            await super().__call__(scope, receive, send)


def _without_body(send: Send) -> Send:
    """`send` for an answer of which only the head goes out."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" or not message.get("more_body", False):
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return sending


def create_app(
    config: Config,
    *,
    clock: Callable[[], float] = time.time,
    diagnose: Diagnose | None = None,
    notifier: Notifier | None = None,
) -> Application:
    """The dashboard as an ASGI application; `app.state.service` is the service while it runs.

    Args:
        config: checked here.
        clock: seconds since 1970.
        diagnose: replaces hangwatch's own diagnosis, for tests.
        notifier: replaces apprise, for tests.

    Raises:
        ConfigError: what `config.check` refuses.
    """
    config.check()

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = Service(config, clock=clock, diagnose=diagnose, notifier=notifier)
        await app.state.service.start()
        try:
            yield
        finally:
            await app.state.service.stop()

    app = Application(
        title="hangwatch",
        version=__version__,
        lifespan=life,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    _add_routes(app, config)
    _add_handlers(app)
    app.add_middleware(GZipMiddleware, minimum_size=2048, compresslevel=3)
    gate = Gate(config, clock)
    app.add_middleware(Guard, gate=gate)
    app.direct = ingest.Direct(gate)
    return app


def _add_routes(app: FastAPI, config: Config) -> None:
    # The routes themselves, made once: `include_router` would make all of them anew, at the first request.
    for router in ROUTERS:
        app.router.routes.extend(router.routes)
    page = Page(config.static)

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        """Where programs of this kind have their API's description by custom."""
        return RedirectResponse("/api/v1/docs")

    @app.get("/{path:path}", include_in_schema=False)
    def any_other(path: str) -> Response:
        if path == "api" or path.startswith("api/"):
            raise BodyError(404, "there is no such address")
        return page.get(path)

    described = app.openapi

    def openapi() -> dict[str, Any]:
        return completed(described()) if app.openapi_schema is None else app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _count(request: Request, status: int) -> None:
    """A refusal, if it is one of a node's."""
    if request.url.path.startswith("/api/v1/ingest/"):
        request.app.state.service.meters.count(str(status))


def _add_handlers(app: FastAPI) -> None:
    @app.exception_handler(BodyError)
    async def refused(request: Request, error: BodyError) -> Response:
        _count(request, error.status)
        return refusal(error)

    @app.exception_handler(StoreBusyError)
    async def busy(request: Request, error: StoreBusyError) -> Response:
        _count(request, 503)
        return refusal(BodyError(503, str(error)))

    @app.exception_handler(HTTPException)
    async def failed(_request: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return refusal(BodyError(422, f"{where}: {first['msg']}"[:300]))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        log.error("%s %r failed", request.method, request.url.path[:200], exc_info=error)
        return JSONResponse({"error": "internal error; the log has more"}, 500)
