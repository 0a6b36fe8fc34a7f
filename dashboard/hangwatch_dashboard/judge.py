"""Judgement of a capture: parts in, a document out. Runs outside the event loop, so that ingest never waits for it.

Large captures are judged in a process of their own: it takes its memory with it when it ends, and evidence that
upsets it takes down nothing else.
"""

from __future__ import annotations

import concurrent.futures
import gc
import multiprocessing
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from hangwatch.model import Incident, Judgement, NodeCapture, Snapshot
from hangwatch.report.incident import incident
from hangwatch.version import __version__
from hangwatch.wire import codec
from hangwatch.wire.compact import expanded
from hangwatch_dashboard.bodies import Reader
from hangwatch_dashboard.merge import Interner, Part, merged
from hangwatch_dashboard.store.rows import PartRow
from hangwatch_dashboard.store.text import unzipped
from hangwatch_dashboard.thin import thinned

Diagnose = Callable[[Snapshot], Judgement]
LARGE_BYTES = 2 << 20  # compressed
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Judged:
    """What came of a capture. `document` is the Incident as compressed JSON, `head` the same without its evidence."""

    judgement: Judgement
    head: Incident
    document: bytes


@dataclass(frozen=True)
class Case:
    """What is to be judged: compressed NodeCaptures with their clock offsets, and one of the rest as JSON."""

    id: str
    opened_at: float
    parts: tuple[PartRow, ...]
    rest: str

    @property
    def size(self) -> int:
        return sum(len(part.body) for part in self.parts)


def judge(case: Case, diagnose: Diagnose | None = None) -> Judged:
    """Merges the parts and judges them. Raises what the parts or the diagnosis raise."""
    reader, interner = Reader(NodeCapture), Interner()
    parts = [Part(row.node, _snapshot(reader, interner, row), row.clock_offset) for row in case.parts]
    rest = codec.loads(NodeCapture, case.rest)
    snapshot = merged(parts, interner.snapshot(expanded(rest.snapshot, rest.groups)))
    judgement = (diagnose or default_diagnose())(snapshot)
    found = incident(judgement, snapshot, id=case.id, opened_at=case.opened_at, hangwatch_version=__version__)
    return Judged(judgement, head_of(found), packed(thinned(found)))


def _snapshot(reader: Reader[NodeCapture], interner: Interner, row: PartRow) -> Snapshot:
    part = reader.read(unzipped(row.body))
    return interner.snapshot(expanded(part.snapshot, part.groups))


def default_diagnose() -> Diagnose:
    """hangwatch's own diagnosis, imported late: it is large, and a dashboard without jobs does not need it."""
    from hangwatch.judge import diagnose

    return diagnose


def judge_apart(case: Case) -> Judged:
    """`judge` in a process of its own, bounded in time. Raises TimeoutError and what `judge` raises."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        processes: Sequence[multiprocessing.process.BaseProcess] = ()
        try:
            future = pool.submit(_judge_to_text, case)
            processes = list((pool._processes or {}).values())
            judgement, head, document = future.result(TIMEOUT_S)
        except TimeoutError:
            for process in processes:
                process.kill()
            raise
    return Judged(codec.loads(Judgement, judgement), codec.loads(Incident, head), document)


def _judge_to_text(case: Case) -> tuple[str, str, bytes]:
    gc.disable()  # this process ends with its one case; looking for garbage among millions of records doubles the time
    judged = judge(case)
    return codec.dumps(judged.judgement), codec.dumps(judged.head), judged.document


def packed(found: Incident) -> bytes:
    """An incident as it is stored: what `hangwatch report` reads, compressed."""
    # pydantic writes ten times faster than `hangwatch.wire.codec`; a test holds the two together. It cannot write half
    # a character, which strict reading keeps out of captures, but not out of what is known from elsewhere.
    try:
        text = _INCIDENT.dump_json(found)
    except PydanticSerializationError:
        text = codec.dumps(found).encode()
    return zlib.compress(text, 3)


_INCIDENT = TypeAdapter(Incident)


def head_of(found: Incident) -> Incident:
    """An incident without its evidence: what lists and messages need."""
    return Incident(
        id=found.id,
        opened_at=found.opened_at,
        detected_after_s=found.detected_after_s,
        status=found.status,
        stage=found.stage,
        job=found.job,
        verdict=found.verdict,
        closed_at=found.closed_at,
        updated_at=found.updated_at,
        hangwatch_version=found.hangwatch_version,
        taken_at=found.taken_at,
        last_progress_at=found.last_progress_at,
    )
