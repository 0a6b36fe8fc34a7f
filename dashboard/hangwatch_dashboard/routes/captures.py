"""Captures on demand."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool

from hangwatch_dashboard import documents, views
from hangwatch_dashboard.answers import Capture, CaptureList
from hangwatch_dashboard.bodies import BodyError
from hangwatch_dashboard.openapi import answers, file
from hangwatch_dashboard.routes import JobKey, RecordId, TheJob, TheService, api_router
from hangwatch_dashboard.routes.downloads import download, speedscope
from hangwatch_dashboard.store.rows import CaptureRow

router = api_router(tag="captures")


@router.get("/jobs/{job}/captures", responses=answers(CaptureList))
async def captures(service: TheService, job: JobKey) -> dict[str, Any]:
    """The captures of a job, newest first."""
    rows = await service.store.ask(service.store.captures_of, job)
    live = service.registry.jobs.get(job)
    return {"captures": [views.capture_view(row, live.capture if live else None) for row in rows]}


@router.post("/jobs/{job}/captures", status_code=202, responses=answers(Capture, 202))
async def capture(service: TheService, found: TheJob) -> dict[str, Any]:
    """Asks all nodes of a job for their evidence."""
    service.capture_rate.check(found.key, service.clock())
    if found.over:
        raise BodyError(422, "the job is over")
    row = await service.captures.ask(found, "asked by a person", service.clock())
    return views.capture_view(row, found.capture)


@router.get("/captures/{id}.speedscope.json", responses=file("application/json"))
async def capture_speedscope(service: TheService, id: RecordId) -> Any:
    """The stacks of a capture, for speedscope."""
    row = await _row(service, id)
    if row.document is None:
        raise BodyError(404, "this capture has no document")
    return download(f"{id}.speedscope.json", await run_in_threadpool(speedscope, row.document))


@router.get("/captures/{id}", responses=answers(Capture))
async def one_capture(service: TheService, id: RecordId) -> dict[str, Any]:
    """A capture with its document."""
    row = await _row(service, id)
    live = service.registry.jobs.get(row.run)
    document = await run_in_threadpool(documents.document, row.document) if row.document else None
    return views.capture_view(row, live.capture if live else None) | {"document": document}


async def _row(service: TheService, id: str) -> CaptureRow:
    row = await service.store.ask(service.store.capture, id)
    if row is None:
        raise BodyError(404, "there is no such capture")
    return row
