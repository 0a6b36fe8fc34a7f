"""Incidents of a job: one open at a time, sharpened by better evidence, closed when the job moves again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool

from hangwatch.judge import comparison as certainty
from hangwatch.model import Incident, Judgement, Progress, Status
from hangwatch.report.incident import recovered
from hangwatch.stacks import tree as stack_tree
from hangwatch.wire import codec
from hangwatch_dashboard import documents, judge
from hangwatch_dashboard.bodies import BodyError
from hangwatch_dashboard.hub import Hub
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.metrics import Meters
from hangwatch_dashboard.notice import QUICK_S
from hangwatch_dashboard.store.rows import IncidentRow, Wanted
from hangwatch_dashboard.store.store import Store
from hangwatch_dashboard.store.text import pack, unpack
from hangwatch_dashboard.views import incident_summary

WORTH_AN_INCIDENT = (Status.HUNG, Status.LINGERING, Status.FAILED)
CLEARED_BY_AN_END = (Status.HUNG, Status.LINGERING, Status.WAITING)
MERGE_S = 10.0  # people are told of one node's verdict only when the other nodes have had time to add theirs
SAME_S = 120.0  # two incidents of one job that opened so near are one


class Incidents:
    """Keeps what is judged. An incident is acknowledged, shown and told only after it is in the store.

    Of one job one judgement is taken at a time (`LiveJob.judging`): the nodes' own, that of all nodes, and the watch's
    looks come at any moment, and each has to know what the one before has opened or closed.
    """

    def __init__(self, store: Store, hub: Hub, clock: Callable[[], float], meters: Meters) -> None:
        self._store, self._hub, self._clock, self._meters = store, hub, clock, meters
        self._still: dict[str, dict[int, Progress]] = {}  # by job: where each rank stood when its incident opened

    async def judged(self, job: LiveJob, judged: judge.Judged) -> None:
        """Takes note of a judgement of all nodes."""
        async with job.judging:
            await self._judged(job, judged)

    async def _judged(self, job: LiveJob, judged: judge.Judged) -> None:
        judgement = judged.judgement
        known, by_node = await self._open(job)
        if judgement.status not in WORTH_AN_INCIDENT:
            if known is None:
                await self._note(job, judgement)
            return
        if job.ended:
            return  # while the evidence was on its way the last rank has ended as it should
        if known is None:
            await self._keep(job, judgement, judged.head, judged.document, change="opened")
        elif surer(judgement, known) or (by_node and not surer(known, judgement)):
            await self._sharpen(job, known, judged)

    async def _sharpen(self, job: LiveJob, known: Incident, judged: judge.Judged) -> None:
        verdict = certainty.sharpened(known.verdict, judged.judgement.verdict)
        changes: dict[str, Any] = {
            "id": known.id,
            "opened_at": known.opened_at,
            "detected_after_s": known.detected_after_s,
            "updated_at": self._clock(),
        }
        packed = await run_in_threadpool(_changed, judged.document, changes | {"verdict": codec.encode(verdict)})
        head = replace(judged.head, **changes, verdict=verdict)
        await self._keep(job, replace(judged.judgement, verdict=verdict), head, packed, change="updated")

    async def from_node(self, job: LiveJob, found: Incident, node: str) -> str:
        """Takes an incident that a node has judged by itself. Returns the id under which it is kept, or ""."""
        await self._check_owner(job, found.id, node)
        found = documents.of_node(found)
        if found.status in CLEARED_BY_AN_END and job.ended_well:
            found = recovered(found, self._clock())  # it comes late, out of a spool
        found = replace(found, stack_tree=stack_tree.of_ranks(found.ranks))
        document = await run_in_threadpool(judge.packed, found)
        async with job.judging:
            return await self._from_node(job, found, document, node)

    async def _from_node(self, job: LiveJob, found: Incident, document: bytes, node: str) -> str:
        known, by_node = await self._open(job)
        alone = job.on_one_node
        if not alone and known is not None and (known.id != found.id or by_node != node):
            return known.id  # the job's incident is there, or is of all nodes together by now
        if not alone and known is None and await self._told_before(job, found):
            return ""
        new = known is None and await self._store.ask(self._store.incident, found.id) is None
        ended = found.status is Status.RECOVERED
        change = "recovered" if ended else "opened" if new else "updated"
        over = found.closed_at is not None
        judgement = None if over else Judgement(found.status, found.stage, found.verdict)
        wait_s = 0.0 if alone else MERGE_S
        await self._keep(job, judgement, judge.head_of(found), document, change=change, by_node=node, wait_s=wait_s)
        return found.id

    async def _check_owner(self, job: LiveJob, id: str, node: str) -> None:
        """Raises BodyError if an incident of this name is there and is of another job."""
        row = await self._store.ask(self._store.incident, id)
        if row is None or (row.run == job.key and unpack(row.summary).get("judged_by") in ("", node)):
            return
        raise BodyError(422, "incident.id: another node's incident has this name")

    async def _told_before(self, job: LiveJob, found: Incident) -> bool:
        """Whether this is an old incident out of a spool, of a hang that is known already."""
        page = await self._store.ask(self._store.lists.incidents, Wanted(run=job.key))
        return any(row.id != found.id and abs(row.opened_at - found.opened_at) < SAME_S for row in page.rows)

    async def _keep(
        self,
        job: LiveJob,
        judgement: Judgement | None,
        head: Incident,
        document: bytes,
        *,
        change: str,
        by_node: str = "",
        wait_s: float = 0.0,
    ) -> None:
        """Stores an incident, then shows it. People are told of the first and the last version, once each."""
        summary = incident_summary(head, job.key, by_node)
        row = IncidentRow(
            id=head.id,
            run=job.key,
            job_name=summary["job_name"],
            opened_at=head.opened_at,
            changed_at=self._clock(),
            status=str(head.status),
            summary=pack(summary),
            document=document,
            closed_at=head.closed_at,
        )
        message = "recovered" if change == "recovered" else "opened"
        due_at = self._clock() + wait_s
        open_incident = "" if head.closed_at is not None else head.id
        values = self._run_values(judgement, self._judged_at(job, judgement)) | {"open_incident": open_incident or None}
        with job.storing():
            await asyncio.wrap_future(self._store.put_incident(row, message, due_at, values))
        job.incident, job.last_incident = open_incident, summary
        self._believe(job, judgement)
        if change == "opened":
            self._still[job.key] = _still(job)
            self._meters.incident(summary["cause"], str(head.status))
        self._hub.publish("incident", {"change": change, "incident": summary})

    async def close_if_moving(self, job: LiveJob, now: float) -> None:
        """A judgement is of a moment. A rank that stood still then, and has moved since, clears it.

        A hang is closed as recovered, unless a rank has gone. Of a job on one node, what its watchdog has judged by
        itself is the watchdog's to close.
        """
        if job.judgement is None or job.judgement.status not in CLEARED_BY_AN_END:
            return
        if job.judging.locked() or not self._has_moved(job):
            return
        async with job.judging:
            if not job.incident:
                await self._note(job, None)
            elif _is_sound(job, now) and not (job.on_one_node and (job.last_incident or {}).get("judged_by")):
                await self._close(job, now)

    async def clear(self, job: LiveJob) -> None:
        """Takes back what was judged and is worth no incident: whatever was waited for has come."""
        if job.judging.locked() or job.incident or job.judgement is None:
            return
        async with job.judging:
            await self._note(job, None)

    def _has_moved(self, job: LiveJob) -> bool:
        pairs = job.ranked()
        then = self._still.setdefault(job.key, {beat.rank: beat.progress for _, beat in pairs})
        return any(_moved(then[beat.rank], beat.progress) for _, beat in pairs if beat.rank in then)

    async def end(self, job: LiveJob, now: float) -> None:
        """Clears what was judged of a job that is over: no rank waits any more, and a clean end was no hang.

        That a rank failed stays said, unless every rank has left as ranks should since.
        """
        if job.judgement is None or job.judging.locked():
            return
        async with job.judging:
            status = job.judgement.status
            if status is Status.WAITING and not job.incident:
                await self._note(job, None)
            elif job.ended_well and (status is not Status.FAILED or job.ended):
                await self._close(job, now)
                if job.judgement is not None:
                    await self._note(job, None)  # there was no incident
            elif job.incident and job.ended_badly:
                await self._end_with_its_job(job, now)

    async def _end_with_its_job(self, job: LiveJob, now: float) -> None:
        """Closes the open incident, whose verdict stays: no rank waits in a job that has ended."""
        known, by_node = await self._open(job)
        if known is None:
            return
        changes = {"closed_at": now, "updated_at": now}
        document = await run_in_threadpool(_changed, judge.packed(known), changes)
        head = replace(judge.head_of(known), closed_at=now, updated_at=now)
        await self._keep(job, job.judgement, head, document, change="updated", by_node=by_node)

    async def _close(self, job: LiveJob, now: float) -> None:
        """Closes the open incident as recovered."""
        known, _ = await self._open(job)
        if known is None:
            return
        ended = recovered(known, now)
        document = await run_in_threadpool(judge.packed, ended)
        self._still.pop(job.key, None)
        await self._keep(job, None, judge.head_of(ended), document, change="recovered")

    async def _open(self, job: LiveJob) -> tuple[Incident | None, str]:
        """The open incident, and the node by which alone it was judged."""
        if not job.incident:
            return None, ""
        row = await self._store.ask(self._store.incident, job.incident)
        if row is None:  # deleted meanwhile
            job.incident = ""
            return None, ""
        return await run_in_threadpool(documents.incident, row.document), unpack(row.summary).get("judged_by", "")

    def _believe(self, job: LiveJob, judgement: Judgement | None) -> None:
        job.judged_at = self._judged_at(job, judgement)
        job.judgement = judgement
        job.facts_revision += 1

    def _judged_at(self, job: LiveJob, judgement: Judgement | None) -> float | None:
        return job.judged_at if judgement is job.judgement else self._clock()

    async def _note(self, job: LiveJob, judgement: Judgement | None) -> None:
        """Takes a judgement that is worth no incident; None when all is well again."""
        self._believe(job, judgement)
        if judgement is None:
            self._still.pop(job.key, None)
        else:
            self._still[job.key] = _still(job) or {beat.rank: beat.progress for _, beat in job.ranked()}
        with job.storing():
            # Without `open_incident`: another process may have opened one this moment.
            await asyncio.wrap_future(self._store.put_run(job.key, **self._run_values(judgement, job.judged_at)))

    def _run_values(self, judgement: Judgement | None, at: float | None) -> dict[str, Any]:
        """What is stored of a run's judgement, for the other processes and for after a restart."""
        return {
            "judgement": pack(codec.encode(judgement)) if judgement else None,
            "judged_at": at,
            "changed_at": self._clock(),
        }


def surer(new: Judgement | Incident, known: Judgement | Incident) -> bool:
    """Whether a judgement may replace another: only a surer one, because the first look had more of the job alive."""
    return certainty.surer(new.verdict, known.verdict)


def _changed(document: bytes, changes: dict[str, Any]) -> bytes:
    return pack(unpack(document) | changes)


def _still(job: LiveJob) -> dict[int, Progress]:
    """Where the ranks are that do not move."""
    return {beat.rank: beat.progress for _, beat in job.ranked() if beat.still_s >= QUICK_S or beat.blocked}


def _is_sound(job: LiveJob, now: float) -> bool:
    """Whether every rank lives, and is heard of."""
    return all(
        beat.process_state not in ("X", "Z", "T", "t") and not beat.exception and not node.is_silent(now)
        for node, beat in job.ranked()
    )


def _moved(before: Progress, after: Progress) -> bool:
    return replace(before, at=0.0) != replace(after, at=0.0)
