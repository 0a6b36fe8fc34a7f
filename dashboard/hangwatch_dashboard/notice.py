"""When it is worth to ask all nodes of a job for their evidence. The rules of the watchdog's schedule, across nodes.

Pure functions of the live job and a clock: batches are cheap, a capture of all ranks is not.
"""

from __future__ import annotations

from hangwatch.looks import Reason
from hangwatch.model import Phase, RankBeat
from hangwatch_dashboard.live import LEAVING, LiveJob
from hangwatch_dashboard.live_node import LiveNode
from hangwatch_dashboard.unhurried import unhurried

QUICK_S = 1.0  # of stillness, after which a possible deadlock is looked at
START_AFTER_S = 30.0
LINGER_AFTER_S = 10.0
REST_S = 10.0  # between captures while nothing is wrong for certain

STARTING = (Phase.START, Phase.INIT, Phase.GROUP)
GONE_STATES, STOPPED_STATES = ("X", "Z"), ("T", "t")
ODD_STATES = (*GONE_STATES, *STOPPED_STATES)

Pair = tuple[LiveNode, RankBeat]


def reasons(job: LiveJob, now: float) -> list[Reason]:
    """Every reason at this moment, the most telling first."""
    ranked = job.ranked()
    troubled: list[Pair] = []
    living: list[Pair] = []
    impatient: list[Pair] = []
    waiting: list[Pair] = []
    leaving: list[Pair] = []
    starting = False
    for pair in unhurried(ranked):  # once: each rank is looked at again every second, and there may be 10,000
        node, beat = pair
        if node.batch.closing or beat.detached:
            continue
        phase, state = beat.phase, beat.process_state
        starting = starting or phase in STARTING
        if beat.exception or phase is Phase.FAILED or state in ODD_STATES:
            troubled.append(pair)
            if state in GONE_STATES:
                continue
        living.append(pair)
        if 0 < beat.patience_s < beat.still_s:
            impatient.append(pair)
        if beat.blocked and beat.still_s > _slow(beat):
            waiting.append(pair)
        if phase in LEAVING:
            leaving.append(pair)
    found = [*_silent(job, now), *_troubled(troubled)]
    if starting:
        found += _missing(job, len(ranked), now)
    found += _deadlock(living)
    if impatient:
        found.append(Reason("patience", _episode(impatient), True, f"no progress for {impatient[0][1].still_s:.0f} s"))
    if waiting:
        found.append(Reason("awaited", _episode(waiting), False, f"rank {waiting[0][1].rank} waits for others"))
    return found + _lingering(leaving, now)


def _silent(job: LiveJob, now: float) -> list[Reason]:
    quiet = [node for node in job.all_nodes if node.is_silent(now)]
    if not quiet or len(quiet) == len(job.nodes):  # all silent: rather this process was stopped
        return []
    key = tuple(sorted((node.name, node.boot) for node in quiet))
    return [Reason("silent", key, True, f"{', '.join(node.host for node in quiet[:3])} fell silent")]


def _troubled(pairs: list[Pair]) -> list[Reason]:
    found = []
    for node, beat in pairs:
        if beat.exception or beat.phase is Phase.FAILED:
            found.append(_trouble("failed", node, beat, "raised"))
        state = beat.process_state
        if state in GONE_STATES and beat.phase not in LEAVING:
            found.append(_trouble("ended", node, beat, "has ended"))
        elif state in STOPPED_STATES and beat.still_s >= QUICK_S:
            found.append(_trouble("stopped", node, beat, "is stopped"))
    return found


def _trouble(kind: str, node: LiveNode, beat: RankBeat, what: str) -> Reason:
    return Reason(kind, (beat.pid, node.name), True, f"rank {beat.rank} on {node.host} {what}")


def _missing(job: LiveJob, came: int, now: float) -> list[Reason]:
    size = job.job.world_size
    if now - job.started_at < START_AFTER_S or size is None or came >= size:
        return []
    return [Reason("missing", (came,), True, f"{came} of {size} ranks came")]


def _deadlock(pairs: list[Pair]) -> list[Reason]:
    # Stillness as of the batch, not of now: a batch that is on its way may tell of movement.
    if not pairs or not all(beat.still_s >= QUICK_S and (beat.blocked or beat.phase in LEAVING) for _, beat in pairs):
        return []
    return [Reason("deadlock", _episode(pairs), True, "no rank moves, and all wait")]


def _lingering(leaving: list[Pair], now: float) -> list[Reason]:
    left = [pair for pair in leaving if now + pair[0].clock.offset - pair[1].phase_at > LINGER_AFTER_S]
    return [Reason("lingering", _episode(left), False, f"rank {left[0][1].rank} does not end")] if left else []


def _slow(beat: RankBeat) -> float:
    return max(2 * QUICK_S, 1.5 * beat.times.slowest_recent_s)


def _episode(pairs: list[Pair]) -> tuple[object, ...]:
    """The same as long as the same ranks stand at the same counters."""
    return (hash(tuple((beat.rank, beat.progress) for _, beat in pairs)),)
