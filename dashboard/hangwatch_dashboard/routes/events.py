"""The live stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import StringConstraints
from starlette.responses import StreamingResponse

from hangwatch.version import __version__
from hangwatch_dashboard import views
from hangwatch_dashboard.bodies import BodyError
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.openapi import file
from hangwatch_dashboard.routes import KEY, TheService, api_router
from hangwatch_dashboard.service import Service

router = api_router(tag="events")

STALE_AFTER_S = 5
MOST_JOBS = 16  # that one stream tells of in full: the tabs of a browser share a stream
HEAD = "hangwatch.head"  # in the scope of a HEAD request, which the routes see as GET

Jobs = Annotated[tuple[Annotated[str, StringConstraints(pattern=f"^$|{KEY}")], ...], Query(max_length=MOST_JOBS)]


@router.get("/events", response_class=StreamingResponse, responses=file("text/event-stream"))
async def events(request: Request, service: TheService, job: Jobs = ()) -> Response:
    """Server-sent events: of all jobs in short, and of the named jobs in full. The id of an event is its job's key.

    A named job that there is not is told as `gone`: tabs share a stream, and one with an old address must not end it.
    """
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    if request.scope.get(HEAD):
        return Response(media_type="text/event-stream", headers=headers)
    if service.hub.full:
        raise BodyError(429, "too many open streams")
    wanted = {key for key in job if key}
    loaded = [found for key in sorted(wanted) if (found := await service.registry.load(key)) is not None]
    first = first_events(service, loaded, sorted(wanted - {each.key for each in loaded}))
    stream = service.hub.stream({each.key for each in loaded}, first, lambda: {"server_time": service.clock()})
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


def first_events(
    service: Service, wanted: list[LiveJob], unknown: Sequence[str] = ()
) -> Iterator[tuple[str, Any, str]]:
    """The whole state, so that a reader that comes back needs no replay: event, data, key of the job or ""."""
    now = service.clock()
    hello = {"server_time": now, "version": __version__, "stale_after_s": STALE_AFTER_S}
    yield "hello", hello, ""
    yield "jobs", {"jobs": [views.job_summary(each, now) for each in service.registry.jobs.values()]}, ""
    for job in wanted:
        yield "job", views.job_detail(job, now), job.key
        yield "ranks", views.rank_columns(job, now), job.key
        yield "collectives", views.group_columns(job, now), job.key
        if job.capture is not None:
            yield "capture", views.capture_view(job.capture.row, job.capture), job.key
    for key in unknown:
        yield "gone", {"job": key}, key
