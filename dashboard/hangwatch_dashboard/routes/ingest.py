"""What the nodes' links send."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from hangwatch.model import NodeBatch, NodeIncident, NodeReply
from hangwatch.wire import codec
from hangwatch_dashboard.answers import Taken, TakenIncident
from hangwatch_dashboard.bodies import LEAST_ROOM, BodyError, Reader, read_body, read_raw, room_for
from hangwatch_dashboard.guard import Gate, refusal
from hangwatch_dashboard.openapi import answers
from hangwatch_dashboard.routes import api_router, client_of, service_of
from hangwatch_dashboard.service import Service
from hangwatch_dashboard.store.writer import StoreBusyError

router = api_router("/ingest", tag="ingest")
PATH = "/api/v1/ingest/batch"

log = logging.getLogger(__name__)

BATCH, INCIDENT = Reader(NodeBatch), Reader(NodeIncident)


def _body(name: str) -> dict[str, Any]:
    """What OpenAPI says of a body that is read by hand."""
    schema = {"$ref": f"#/components/schemas/{name}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


@router.post("/batch", responses=answers(NodeReply), openapi_extra=_body("NodeBatch"))
async def batch(request: Request) -> Response:
    """One node's ranks at one moment. The answer means that it is in the store."""
    answer = await take_batch(service_of(request), request.headers, request.receive)
    return Response(answer, media_type="application/json")


async def take_batch(service: Service, headers: Mapping[str, str], receive: Receive) -> str:
    """Takes a batch, and returns the answer in JSON. Raises BodyError and StoreBusyError."""
    raw = await read_raw(headers, receive, service.config.limits.batch_bytes)
    reply = await service.ingest.batch(BATCH.read(raw.in_the_clear()), raw.packed(), _sent_at(headers))
    return _dumped(reply)


def _dumped(reply: NodeReply) -> str:
    if reply.commands:
        return codec.dumps(reply)
    return f'{{"accepted":{reply.accepted},"server_time":{reply.server_time!r},"commands":[]}}'


@router.post("/capture", responses=answers(Taken), openapi_extra=_body("NodeCapture"))
async def capture(request: Request) -> dict[str, Any]:
    """One node's part of a capture."""
    service = service_of(request)
    client, limit = client_of(request), service.config.limits.capture_bytes
    # It holds room until it is in the store, where a thousand of the usual size are written at once.
    async with service.large_bodies.place(client, room_for(request.headers, limit)):
        raw = await read_raw(request.headers, request.receive, limit)
        async with service.reading.place(client, max(LEAST_ROOM, raw.clear_size)):
            part = await service.captures.reader.read(raw)
        await service.ingest.capture(part, raw.packed())
    return {"accepted": True}


@router.post("/incident", responses=answers(TakenIncident), openapi_extra=_body("NodeIncident"))
async def incident(request: Request) -> dict[str, Any]:
    """An incident that a node's watchdog has judged by itself."""
    service = service_of(request)
    limit = service.config.limits.capture_bytes
    # Its records wait for the store, not its bytes: they may be of any size that the limit allows.
    async with service.large_bodies.place(client_of(request), limit):
        body = await read_body(request, limit)
        kept = await service.ingest.incident(INCIDENT.read(body))
    return {"accepted": True, "incident": kept or None}


def _sent_at(headers: Mapping[str, str]) -> float | None:
    """The node's clock when the request left. Raises BodyError."""
    text = headers.get("hangwatch-sent-at")
    if text is None:
        return None
    try:
        moment = float(text)
    except ValueError:
        moment = math.nan
    if not 0 < moment < 1e11:
        raise BodyError(422, "Hangwatch-Sent-At: not a moment in seconds since 1970")
    return moment


def is_batch(scope: Scope) -> bool:
    """Whether a request is a node's batch, or claims to be."""
    return bool(scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "POST")


class Direct:
    """Answers batches before all other layers, which would cost more than the batch, a thousand times a second."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        said = {"content-type": "application/json"} | gate.headers(PATH)
        self._headers = [(name.encode(), value.encode()) for name, value in said.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = (await self._answer(scope, receive)).encode()
        except BodyError as error:
            await refusal(error)(scope, receive, self._gate.telling(scope, send))
            return
        headers = [(b"content-length", str(len(answer)).encode()), *self._headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, scope: Scope, receive: Receive) -> str:
        # The first of several headers of one name counts, as it does for the routes.
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        self._gate.admit(scope, headers)
        service: Service = scope["app"].state.service
        try:
            return await take_batch(service, headers, receive)
        except BodyError as error:
            service.meters.count(str(error.status))
            raise
        except StoreBusyError as error:
            service.meters.count("503")
            raise BodyError(503, str(error)) from None
        except Exception:
            log.exception("a batch could not be taken")
            raise BodyError(500, "internal error; the log has more") from None
