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
    """Keeps what is judged. An incident is acknowledged, shown and told only after it is in the store."""

    def __init__(self, store: Store, hub: Hub, clock: Callable[[], float], meters: Meters) -> None:
        self._store, self._hub, self._clock, self._meters = store, hub, clock, meters
        self._still: dict[str, dict[int, Progress]] = {}  # by job: where each rank stood when its incident opened

    async def judged(self, job: LiveJob, judged: judge.Judged) -> None:
        """Takes note of a judgement of all nodes."""
        judgement = judged.judgement
        known, by_node = await self._open(job)
        if judgement.status not in WORTH_AN_INCIDENT:
            if known is None:
                await self.note(job, judgement)
            return
        if job.ended:
            return  # while the evidence was on its way the last rank has ended as it should
        if known is None:
            self._believe(job, judgement)
            await self.keep(job, judged.head, judged.document, change="opened")
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
        self._believe(job, replace(judged.judgement, verdict=verdict))
        await self.keep(job, replace(judged.head, **changes, verdict=verdict), packed, change="updated")

    async def from_node(self, job: LiveJob, found: Incident, node: str) -> str:
        """Takes an incident that a node has judged by itself. Returns the id under which it is kept, or ""."""
        await self._check_owner(job, found.id, node)
        found = documents.of_node(found)
        if found.status in CLEARED_BY_AN_END and job.ended_well:
            found = recovered(found, self._clock())  # it comes late, out of a spool
        known, by_node = await self._open(job)
        alone = job.on_one_node
        if not alone and known is not None and (known.id != found.id or by_node != node):
            return known.id  # the job's incident is there, or is of all nodes together by now
        if not alone and known is None and await self._told_before(job, found):
            return ""
        found = replace(found, stack_tree=stack_tree.of_ranks(found.ranks))
        document = await run_in_threadpool(judge.packed, found)
        new = known is None and await self._store.ask(self._store.incident, found.id) is None
        ended = found.status is Status.RECOVERED
        change = "recovered" if ended else "opened" if new else "updated"
        wait_s = 0.0 if alone else MERGE_S
        over = found.closed_at is not None
        if not alone and job.incident not in ("", found.id):
            return job.incident  # all nodes together have been judged meanwhile
        # Only now, when `keep` opens the incident before it waits: a judgement without one would be cleared.
        self._believe(job, None if over else Judgement(found.status, found.stage, found.verdict))
        await self.keep(job, judge.head_of(found), document, change=change, by_node=node, wait_s=wait_s)
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

    async def keep(
        self,
        job: LiveJob,
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
        job.incident = "" if head.closed_at is not None else head.id
        due_at = self._clock() + wait_s
        with job.storing():
            await asyncio.wrap_future(self._store.put_incident(row, message, due_at, self._run_values(job)))
        job.last_incident = summary
        job.facts_revision += 1
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
        if not self._has_moved(job):
            return
        if not job.incident:
            await self.note(job, None)
        elif _is_sound(job, now) and not (job.on_one_node and (job.last_incident or {}).get("judged_by")):
            await self.close(job, now)

    def _has_moved(self, job: LiveJob) -> bool:
        pairs = job.ranked()
        then = self._still.setdefault(job.key, {beat.rank: beat.progress for _, beat in pairs})
        return any(_moved(then[beat.rank], beat.progress) for _, beat in pairs if beat.rank in then)

    async def end(self, job: LiveJob, now: float) -> None:
        """Clears what was judged of a job that is over: no rank waits any more, and a clean end was no hang.

        That a rank failed stays said, unless every rank has left as ranks should since.
        """
        if job.judgement is None:
            return
        status = job.judgement.status
        if status is Status.WAITING and not job.incident:
            await self.note(job, None)
        elif job.ended_well and (status is not Status.FAILED or job.ended):
            await self.close(job, now)
            if job.judgement is not None:
                await self.note(job, None)  # there was no incident
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
        await self.keep(job, head, document, change="updated", by_node=by_node)

    async def close(self, job: LiveJob, now: float) -> None:
        """Closes the open incident as recovered."""
        known, _ = await self._open(job)
        if known is None:
            return
        ended = recovered(known, now)
        document = await run_in_threadpool(judge.packed, ended)
        job.judgement = None
        self._still.pop(job.key, None)
        await self.keep(job, judge.head_of(ended), document, change="recovered")

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
        job.judgement, job.judged_at = judgement, self._clock()
        job.facts_revision += 1

    async def note(self, job: LiveJob, judgement: Judgement | None) -> None:
        """Takes a judgement that is worth no incident; None when all is well again."""
        self._believe(job, judgement)
        if judgement is None:
            self._still.pop(job.key, None)
        else:
            self._still[job.key] = _still(job) or {beat.rank: beat.progress for _, beat in job.ranked()}
        values = self._run_values(job)
        del values["open_incident"]  # another process may have opened one this moment
        with job.storing():
            await asyncio.wrap_future(self._store.put_run(job.key, **values))

    def _run_values(self, job: LiveJob) -> dict[str, Any]:
        """What is stored of a run's judgement, for the other processes and for after a restart."""
        return {
            "judgement": pack(codec.encode(job.judgement)) if job.judgement else None,
            "judged_at": job.judged_at,
            "open_incident": job.incident or None,
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
