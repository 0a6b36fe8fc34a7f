"""Jobs and their ranks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Path, Query, Response

from hangwatch.wire import members
from hangwatch_dashboard import views
from hangwatch_dashboard.answers import GroupColumns, HealthOfJob, History, JobDetail, JobList, RankColumns, RankDetail
from hangwatch_dashboard.aside import aside
from hangwatch_dashboard.bodies import BodyError
from hangwatch_dashboard.checks import MOST_RANKS
from hangwatch_dashboard.hub import dumped
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.openapi import answers
from hangwatch_dashboard.routes import Cause, JobKey, Limit, Moment, Offset, Search, TheJob, TheService, api_router
from hangwatch_dashboard.store.rows import Wanted

router = api_router("/jobs", tag="jobs")

STATES = "^(starting|running|waiting|hung|lingering|failed|finished|silent)?$"
MOST_RANKS_OF_HISTORY = 256


@router.get("", responses=answers(JobList))
async def jobs(
    service: TheService,
    search: Search = "",
    state: Annotated[str, Query(pattern=STATES)] = "",
    cause: Cause = "",
    since: Moment = None,
    until: Moment = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> dict[str, Any]:
    """All jobs, running and finished, last seen first. `hung` and `lingering` are also those that ended after it."""
    wanted = Wanted(state=state, cause=cause, text=search.replace("\0", ""), since=since, until=until)
    page = await service.store.ask(service.store.lists.runs, wanted, limit, offset)
    now = service.clock()
    found = []
    for row in page.rows:
        live = service.registry.jobs.get(row.key)
        if live is None:
            found.append(views.stored_job(row))
        else:
            found.append(await aside(live, views.job_summary, live.as_now(), now))
    return {"jobs": found, "total": page.total}


@router.get("/{job}", responses=answers(JobDetail))
async def job(service: TheService, found: TheJob) -> Response:
    """One job with its nodes, judgement and warnings."""
    return await _shown(found, views.job_detail, service.clock())


@router.get("/{job}/ranks", responses=answers(RankColumns))
async def ranks(service: TheService, found: TheJob) -> Response:
    """All ranks, column by column."""
    return await _shown(found, views.rank_columns, service.clock())


@router.get("/{job}/ranks/{rank}", responses=answers(RankDetail))
async def rank(found: TheJob, rank: Annotated[int, Path(ge=0, le=MOST_RANKS)]) -> dict[str, Any]:
    """One rank."""
    view = views.rank_detail(found, rank)
    if view is None:
        raise BodyError(404, "nothing has been heard of this rank")
    return view


@router.get("/{job}/collectives", responses=answers(GroupColumns))
async def collectives(service: TheService, found: TheJob) -> Response:
    """Each rank's place in every process group."""
    return await _shown(found, views.group_columns, service.clock())


@router.get("/{job}/health", responses=answers(HealthOfJob))
async def health(service: TheService, found: TheJob) -> Response:
    """How fast the ranks are: the slowest ranks and nodes with their last windows, and quantiles of all."""
    return await _shown(found, views.job_health, service.clock())


async def _shown(job: LiveJob, view: Callable[[LiveJob, float], views.Document], now: float) -> Response:
    """A view of a job. That of a large one is also written aside, which takes longer than making it."""
    seen = job.as_now()
    return Response(await aside(job, lambda: dumped(view(seen, now))), media_type="application/json")


@router.get("/{job}/history", responses=answers(History))
async def history(
    service: TheService,
    found: TheJob,
    seconds: Annotated[float, Query(gt=0, le=300)] = 300.0,
    ranks: Annotated[str, Query(max_length=2000, pattern="^[0-9,-]*$")] = "",
) -> dict[str, Any]:
    """The last minutes of some ranks."""
    wanted = _chosen(found, ranks)
    columns = found.history.columns((found.closed_at or service.clock()) - seconds, wanted)
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
