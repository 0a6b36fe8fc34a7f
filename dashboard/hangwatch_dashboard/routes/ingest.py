"""What the nodes' links send."""

from __future__ import annotations

import math
import zlib
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hangwatch import wire
from hangwatch.records import NodeBatch, NodeCapture, NodeIncident, NodeReply
from hangwatch_dashboard.bodies import BodyError, Reader, read_body, read_packed
from hangwatch_dashboard.guard import refusal
from hangwatch_dashboard.routes import service_of
from hangwatch_dashboard.store.writer import StoreBusyError

router = APIRouter(prefix="/ingest", tags=["ingest"])

BATCH, CAPTURE, INCIDENT = Reader(NodeBatch), Reader(NodeCapture), Reader(NodeIncident)


def _body(name: str) -> dict[str, Any]:
    """What OpenAPI says of a body that is read by hand."""
    schema = {"$ref": f"#/components/schemas/{name}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


@router.post("/batch", openapi_extra=_body("NodeBatch"))
async def batch(request: Request) -> Response:
    """One node's ranks at one moment. The answer means that it is in the store."""
    return await take_batch(request)


async def take_batch(request: Request) -> Response:
    """Takes a batch. Raises BodyError and StoreBusyError."""
    service = service_of(request)
    limits = service.config.limits
    body, packed = await read_packed(request, limits.batch_bytes)
    reply = await service.ingest.batch(BATCH.read(body), packed or zlib.compress(body, 1), _sent_at(request))
    return Response(_dumped(reply), media_type="application/json")


def _dumped(reply: NodeReply) -> str:
    if reply.commands:
        return wire.dumps(reply)
    return f'{{"accepted":{reply.accepted},"server_time":{reply.server_time!r},"commands":[]}}'


@router.post("/capture", openapi_extra=_body("NodeCapture"))
async def capture(request: Request) -> dict[str, Any]:
    """One node's part of a capture."""
    service = service_of(request)
    limits = service.config.limits
    async with service.large_bodies:
        body = await read_body(request, limits.capture_bytes)
        await service.ingest.capture(CAPTURE.read(body), body)
    return {"accepted": True}


@router.post("/incident", openapi_extra=_body("NodeIncident"))
async def incident(request: Request) -> dict[str, Any]:
    """An incident that a node's watchdog has judged by itself."""
    service = service_of(request)
    limits = service.config.limits
    async with service.large_bodies:
        body = await read_body(request, limits.capture_bytes)
        kept = await service.ingest.incident(INCIDENT.read(body))
    return {"accepted": True, "incident": kept or None}


def _sent_at(request: Request) -> float | None:
    """The node's clock when the request left. Raises BodyError."""
    text = request.headers.get("hangwatch-sent-at")
    if text is None:
        return None
    try:
        moment = float(text)
    except ValueError:
        moment = math.nan
    if not 0 < moment < 1e11:
        raise BodyError(422, "Hangwatch-Sent-At: not a moment in seconds since 1970")
    return moment


class Direct:
    """Answers batches before the router: its layers would cost more than the batch, a thousand times a second."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/api/v1/ingest/batch" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await take_batch(request)
        except BodyError as error:
            service_of(request).meters.count(str(error.status))
            response = refusal(error)
        except StoreBusyError as error:
            response = refusal(BodyError(503, str(error)))
        await response(scope, receive, send)
