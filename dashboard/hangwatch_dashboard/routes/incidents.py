"""Incidents: the history."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Query, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse

from hangwatch.model import Incident
from hangwatch_dashboard import documents, views
from hangwatch_dashboard.answers import IncidentList, ListedIncident
from hangwatch_dashboard.bodies import BodyError
from hangwatch_dashboard.openapi import answers, file
from hangwatch_dashboard.routes import KEY, Cause, Limit, Moment, Offset, RecordId, Search, TheService, api_router
from hangwatch_dashboard.routes.downloads import download, html, speedscope
from hangwatch_dashboard.store.rows import IncidentRow, Wanted

router = api_router("/incidents", tag="incidents")

GROUP = "^([0-9a-f]{16})?$"
IncidentStatus = Annotated[str, Query(pattern="^(hung|lingering|failed|recovered)?$")]


@router.get("", responses=answers(IncidentList))
async def incidents(
    service: TheService,
    job: Annotated[str, Query(pattern=f"^$|{KEY}")] = "",
    status: IncidentStatus = "",
    cause: Cause = "",
    group: Annotated[str, Query(pattern=GROUP)] = "",
    search: Search = "",
    since: Moment = None,
    until: Moment = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> dict[str, Any]:
    """Incidents of all jobs or of one, newest first."""
    wanted = Wanted(job, status, cause, group, search.replace("\0", ""), since, until)
    page = await service.store.ask(service.store.lists.incidents, wanted, limit, offset)
    return {"incidents": [views.listed_incident(row) for row in page.rows], "total": page.total}


@router.get("/{id}.html", response_class=HTMLResponse)
async def incident_html(service: TheService, id: RecordId) -> Response:
    """The self-contained page, as a download."""
    row = await _row(service, id)
    return download(f"incident-{id}.html", await run_in_threadpool(html, row.document))


@router.get("/{id}.speedscope.json", responses=file("application/json"))
async def incident_speedscope(service: TheService, id: RecordId) -> Response:
    """The stacks, for speedscope."""
    row = await _row(service, id)
    return download(f"incident-{id}.speedscope.json", await run_in_threadpool(speedscope, row.document))


@router.get("/{id}.json", responses=file("application/json"))
async def incident_json(service: TheService, id: RecordId) -> Response:
    """The report, as a download that `hangwatch report` and `hangwatch analyze` read."""
    row = await _row(service, id)
    return download(f"incident-{id}.json", await run_in_threadpool(documents.text, row.document))


@router.get("/{id}/summary", responses=answers(ListedIncident))
async def incident_summary(service: TheService, id: RecordId) -> dict[str, Any]:
    """The incident without its evidence, with its job and what people noted of it."""
    found = await service.store.ask(service.store.lists.incident, id)
    if found is None:
        raise BodyError(404, "there is no such incident")
    return views.listed_incident(found)


@router.get("/{id}", responses=answers(Incident))
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
