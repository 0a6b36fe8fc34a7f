"""Incidents: the history."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool

from hangwatch_dashboard import documents
from hangwatch_dashboard.bodies import BodyError
from hangwatch_dashboard.routes import KEY, RecordId, TheService
from hangwatch_dashboard.routes.downloads import download, html, speedscope
from hangwatch_dashboard.store.rows import IncidentRow

router = APIRouter(prefix="/incidents", tags=["incidents"])


@router.get("")
async def incidents(
    service: TheService,
    job: Annotated[str, Query(pattern=f"^$|{KEY}")] = "",
    status: Annotated[str, Query(pattern="^(hung|lingering|failed|recovered)?$")] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> dict[str, Any]:
    """Incidents of all jobs or of one, newest first."""
    page = await service.store.ask(service.store.find_incidents, job, status, limit, offset)
    return {"incidents": [documents.summary(row.summary) for row in page.rows], "total": page.total}


@router.get("/{id}.html")
async def incident_html(service: TheService, id: RecordId) -> Response:
    """The self-contained page, as a download."""
    row = await _row(service, id)
    return download(f"incident-{id}.html", await run_in_threadpool(html, row.document))


@router.get("/{id}.speedscope.json")
async def incident_speedscope(service: TheService, id: RecordId) -> Response:
    """The stacks, for speedscope."""
    row = await _row(service, id)
    return download(f"incident-{id}.speedscope.json", await run_in_threadpool(speedscope, row.document))


@router.get("/{id}.json")
async def incident_json(service: TheService, id: RecordId) -> Response:
    """The report, as a download that `hangwatch report` and `hangwatch analyze` read."""
    row = await _row(service, id)
    return download(f"incident-{id}.json", await run_in_threadpool(documents.text, row.document))


@router.get("/{id}")
async def incident(service: TheService, id: RecordId) -> Response:
    """The report."""
    row = await _row(service, id)
    return Response(await run_in_threadpool(documents.text, row.document), media_type="application/json")


@router.delete("/{id}", status_code=204)
async def delete(service: TheService, id: RecordId) -> Response:
    """Deletes an incident."""
    row = await _row(service, id)
    await asyncio.wrap_future(service.store.delete_incident(id))
    for job in service.registry.jobs.values():
        if job.incident == id:
            job.incident = ""
        if job.last_incident is not None and job.last_incident.get("id") == id:
            job.last_incident = None
    service.hub.publish("incident", {"change": "deleted", "incident": documents.summary(row.summary)})
    return Response(status_code=204)


async def _row(service: TheService, id: str) -> IncidentRow:
    row = await service.store.ask(service.store.incident, id)
    if row is None:
        raise BodyError(404, "there is no such incident")
    return row
