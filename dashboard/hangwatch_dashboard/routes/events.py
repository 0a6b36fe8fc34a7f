"""The live stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

import hangwatch
from hangwatch_dashboard import views
from hangwatch_dashboard.bodies import BodyError
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.routes import KEY, TheService
from hangwatch_dashboard.service import Service

router = APIRouter(tags=["events"])

STALE_AFTER_S = 5


@router.get("/events", response_class=StreamingResponse)
async def events(service: TheService, job: Annotated[str, Query(pattern=f"^$|{KEY}")] = "") -> StreamingResponse:
    """Server-sent events: of all jobs in short, and of one job in full."""
    found = await service.registry.load(job) if job else None
    if job and found is None:
        raise BodyError(404, "there is no such job")
    if service.hub.full:
        raise BodyError(429, "too many open streams")
    stream = service.hub.stream(job, first_events(service, found), lambda: {"server_time": service.clock()})
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


def first_events(service: Service, job: LiveJob | None) -> Iterator[tuple[str, Any]]:
    """The whole state, so that a reader that comes back needs no replay."""
    now = service.clock()
    yield (
        "hello",
        {"server_time": now, "version": hangwatch.__version__, "stale_after_s": STALE_AFTER_S},
    )
    yield "jobs", {"jobs": [views.job_summary(each, now) for each in service.registry.jobs.values()]}
    if job is not None:
        yield "job", views.job_detail(job, now)
        yield "ranks", views.rank_columns(job, now)
        yield "collectives", views.group_columns(job, now)
        if job.capture is not None:
            yield "capture", views.capture_view(job.capture.row, job.capture)
