"""Jobs and their ranks."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from hangwatch.wire import members
from hangwatch_dashboard import documents, views
from hangwatch_dashboard.bodies import BodyError
from hangwatch_dashboard.checks import MOST_RANKS
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.routes import JobKey, TheJob, TheService

router = APIRouter(prefix="/jobs", tags=["jobs"])

STATES = "^(starting|running|waiting|hung|lingering|failed|finished|silent)?$"
MOST_RANKS_OF_HISTORY = 256


@router.get("")
async def jobs(
    service: TheService,
    search: Annotated[str, Query(max_length=200)] = "",
    state: Annotated[str, Query(pattern=STATES)] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> dict[str, Any]:
    """All jobs, running and finished, last seen first."""
    page = await service.store.ask(service.store.find_runs, search.replace("\0", ""), state, limit, offset)
    now = service.clock()
    found = []
    for row in page.rows:
        live = service.registry.jobs.get(row.key)
        if live is not None:
            found.append(views.job_summary(live, now))
        elif row.summary is not None:
            found.append(documents.job_summary(row.summary) | {"state": row.state})
    return {"jobs": found, "total": page.total}


@router.get("/{job}")
async def job(service: TheService, found: TheJob) -> dict[str, Any]:
    """One job with its nodes, judgement and warnings."""
    return views.job_detail(found, service.clock())


@router.get("/{job}/ranks")
async def ranks(service: TheService, found: TheJob) -> dict[str, Any]:
    """All ranks, column by column."""
    return views.rank_columns(found, service.clock())


@router.get("/{job}/ranks/{rank}")
async def rank(found: TheJob, rank: Annotated[int, Path(ge=0, le=MOST_RANKS)]) -> dict[str, Any]:
    """One rank."""
    view = views.rank_detail(found, rank)
    if view is None:
        raise BodyError(404, "nothing has been heard of this rank")
    return view


@router.get("/{job}/collectives")
async def collectives(service: TheService, found: TheJob) -> dict[str, Any]:
    """Who is where in every process group."""
    return views.group_columns(found, service.clock())


@router.get("/{job}/history")
async def history(
    service: TheService,
    found: TheJob,
    seconds: Annotated[float, Query(gt=0, le=300)] = 300.0,
    ranks: Annotated[str, Query(max_length=2000, pattern="^[0-9,-]*$")] = "",
) -> dict[str, Any]:
    """The last minutes of some ranks."""
    wanted = _chosen(found, ranks)
    columns = found.history.columns(service.clock() - seconds, wanted)
    return {"job": found.key, "phases": views.PHASES, "rank": wanted, **columns}


def _chosen(job: LiveJob, text: str) -> tuple[int, ...]:
    if not text:
        return tuple(beat.rank for _, beat in job.ranked()[:64])
    try:
        wanted = members.parse(text)
    except ValueError as error:
        raise BodyError(422, f"ranks: {error}") from None
    if len(wanted) > MOST_RANKS_OF_HISTORY:
        raise BodyError(422, f"ranks: at most {MOST_RANKS_OF_HISTORY} at once")
    return wanted


@router.delete("/{job}", status_code=204)
async def delete(service: TheService, job: JobKey) -> Response:
    """Deletes a job and everything that belongs to it."""
    if await service.store.ask(service.store.run, job) is None:
        raise BodyError(404, "there is no such job")
    await asyncio.wrap_future(service.store.delete_run(job))
    service.registry.forget(job)
    service.hub.publish("gone", {"job": job})
    return Response(status_code=204)
