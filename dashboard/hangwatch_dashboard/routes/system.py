"""What is not about jobs: the session, the schema, health, metrics."""

from __future__ import annotations

import functools
import json
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse

from hangwatch.version import __version__
from hangwatch_dashboard.answers import About, Health, Session
from hangwatch_dashboard.auth import COOKIE, SESSION_S, Role, new_session, role_of_token
from hangwatch_dashboard.bodies import BodyError, read_body
from hangwatch_dashboard.openapi import DOCS_STYLE, answers, body, docs_page
from hangwatch_dashboard.routes import TheService, api_router, client_of
from hangwatch_dashboard.schema import record_schemas

router = api_router(tag="system")
root = APIRouter(tags=["system"])

TOKEN = body({"type": "object", "required": ["token"], "properties": {"token": {"type": "string"}}})


@router.get("/about", responses=answers(About))
async def about(service: TheService) -> dict[str, Any]:
    """What is running here."""
    jobs = service.registry.jobs.values()
    return {
        "version": __version__,
        "server_time": service.clock(),
        "store": "postgresql" if service.store.is_postgresql else "sqlite",
        "nodes": sum(len(job.nodes) for job in jobs),
        "ranks": sum(len(job.ranked()) for job in jobs),
    }


@router.get("/schema")
async def schema() -> dict[str, Any]:
    """JSON Schema of the records that travel."""
    return _schema()


@functools.cache
def _schema() -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": record_schemas("#/$defs/{model}")}


@router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """This API as a page."""
    return HTMLResponse(docs_page(request.app.openapi()))


@router.get("/docs.css", include_in_schema=False)
async def docs_style() -> Response:
    """How that page looks: a file of its own, for the page's policy allows no style within it."""
    return Response(DOCS_STYLE, media_type="text/css")


@router.get("/session", responses=answers(Session))
async def session(request: Request, service: TheService) -> dict[str, Any]:
    """Whether a token is needed, and whether this browser has shown one."""
    role = request.state.role
    may_delete = role is Role.ADMIN
    return {
        "required": service.config.tokens_required,
        "signed_in": role in (Role.READ, Role.ADMIN),
        "may_delete": may_delete,
    }


@router.post("/session", responses=answers(Session), openapi_extra=TOKEN)
async def sign_in(request: Request, service: TheService) -> Response:
    """Takes a token once and gives a cookie for it."""
    service.sign_in_rate.check(client_of(request), service.clock())
    body = await read_body(request, 4096)
    try:
        token = json.loads(body)["token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BodyError(400, 'the body must be {"token": "..."}') from None
    config = service.config
    role = role_of_token(config, token) if isinstance(token, str) else Role.NOBODY
    if not config.tokens_required or role not in (Role.READ, Role.ADMIN):
        raise BodyError(401, "this token does not allow reading")
    answer = JSONResponse({"required": True, "signed_in": True, "may_delete": role is Role.ADMIN})
    secure = config.url.startswith("https")
    value = new_session(config, role, service.clock())
    answer.set_cookie(COOKIE, value, max_age=SESSION_S, httponly=True, samesite="strict", secure=secure)
    return answer


@router.delete("/session", status_code=204)
async def sign_out() -> Response:
    """Takes the cookie back."""
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


@root.get("/healthz", responses=answers(Health))
async def healthz() -> dict[str, str]:
    """Whether the process lives."""
    return {"status": "ok"}


@root.get("/readyz", responses=answers(Health))
async def readyz(service: TheService) -> dict[str, str]:
    """Whether it can keep what it is sent."""
    try:
        await service.store.ask(service.store.ping)
    except Exception:
        raise BodyError(503, "the store cannot be read") from None
    if not service.store.writer.healthy:
        raise BodyError(503, "the store cannot be written")
    return {"status": "ok"}


@root.get("/metrics", response_class=PlainTextResponse)
async def prometheus(service: TheService) -> PlainTextResponse:
    """Prometheus text."""
    text = service.meters.page(service.registry.jobs.values(), len(service.hub.readers), service.clock())
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")
