"""The board of a simulated rank, and what its flight recorder answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache

from hangwatch.model import (
    Collective,
    Collectives,
    ExceptionFacts,
    Frame,
    GroupHead,
    GroupMade,
    Identity,
    LoaderFacts,
    PeerCount,
    Progress,
    Reading,
    StepTimes,
)
from hangwatch.stacks.frames import told, via

from .acts import Collective as CollectiveCall
from .acts import DeviceWait, Monitored, Peer, Wait
from .calls import Issued, Thread
from .camera import Camera
from .looks import BACKWARD
from .machine import Machine
from .places import SCRIPT, Site
from .ranks import LoaderState, Rank
from .stacks import C10D, HOOKED_WAIT, inside, joined


def heads_of(machine: Machine, rank: Rank, camera: Camera) -> tuple[GroupHead, ...]:
    if rank.destroyed:
        return ()
    completed = completed_of(rank)
    return tuple(
        GroupHead(
            comm.name,
            comm.members,
            backend=comm.backend,
            issued=rank.issued.get(comm.name, 0) or -1,
            completed=completed.get(comm.name, -1) if camera.recorder or not machine.nccl else -1,
            sent=rank.sent.get(comm.name, 0),
            received=rank.received.get(comm.name, 0),
            peers=_peers(rank, comm.name),
        )
        for comm in machine.comms
        if rank.number in comm.members
    )


def _peers(rank: Rank, name: str) -> tuple[PeerCount, ...]:
    acts = [call.act for call in rank.calls if isinstance(call.act, Peer) and call.act.group == name]
    made = Counter((act.peer, act.op) for act in acts)
    return tuple(PeerCount(peer, made[peer, "send"], made[peer, "recv"]) for peer in sorted({act.peer for act in acts}))


def completed_of(rank: Rank) -> dict[str, int]:
    """Per group the number up to which all calls are complete."""
    found: dict[str, int] = {}
    open_groups = set()
    for call in rank.calls:
        act = call.act
        if isinstance(act, Peer) or act.op == "monitored_barrier" or act.backend:
            continue
        if not call.complete:
            open_groups.add(act.group)
        elif act.group not in open_groups:
            found[act.group] = call.seq
    return found


def listed(act: CollectiveCall | Peer) -> bool:
    """Issued from Python: what DDP issues from C++ is not on the board."""
    return isinstance(act, Peer) or act.via == "python"


def answer_of(machine: Machine, rank: Rank, reading: Reading | None) -> Collectives:
    """What the rank says when it is asked: its flight recorder, joined with its board."""
    heads = reading.heads if reading is not None else heads_of(machine, rank, Camera())
    open_calls = reading.open_calls if reading is not None else open_calls_of(rank)
    told = _has_one_backward(rank)
    recent = tuple(_recorded(machine, call, told=told) for call in rank.calls[-128:])
    return Collectives(heads, recent, open_calls, "flight-recorder")


def from_board(reading: Reading | None) -> Collectives:
    """What is left where a rank does not answer."""
    return Collectives() if reading is None else Collectives(reading.heads, reading.calls, reading.open_calls, "board")


def _has_one_backward(rank: Rank) -> bool:
    """All of its backwards come by one path, which the board then tells."""
    paths = {call.act.site.frames for call in rank.calls if getattr(call.act, "via", "") == "gradients"}
    return len(paths) == 1


def _recorded(machine: Machine, call: Issued, *, told: bool) -> Collective:
    """An entry of the flight recorder, joined with what the board knows of it: where backward was called, if `told`."""
    act = call.act
    if isinstance(act, Peer):
        return on_board(call)
    if not listed(act):
        device = machine.on_device(call)
        untold = device and act.via == "gradients" and not told
        frames = () if untold else joined(inside(act), act.site.frames)
        thread = "pt_autograd_0" if device and act.via == "gradients" else "python"
        return Collective(
            act.group, call.seq, act.op, ((act.size,),), (act.dtype,), call.complete, thread_name=thread,
            frames=frames, at=call.at,
        )  # fmt: skip
    if act.op == "monitored_barrier" or act.backend:
        return on_board(call)
    return Collective(
        act.group,
        call.seq,
        act.op,
        ((act.size,),) if act.op != "barrier" else (),
        (act.dtype,) if act.op != "barrier" else (),
        call.complete,
        act.root,
        thread_name=call.thread.name,
        frames=joined(inside(act)[1:], act.site.frames),
        at=call.at,
        step=call.step,
    )


def on_board(call: Issued) -> Collective:
    """An entry of the board's ring of calls, with those of its frames that evidence keeps."""
    act = call.act
    peer = act.peer if isinstance(act, Peer) else act.root
    barrier = "barrier" in act.op
    return Collective(
        act.group,
        call.seq,
        act.op,
        () if barrier else ((act.size,),),
        () if barrier else (act.dtype if isinstance(act, CollectiveCall) else "Float",),
        peer=peer,
        tag=act.tag if isinstance(act, Peer) else None,
        thread_id=1,
        thread_name=call.thread.name,
        frames=_path(act.op, act.site),
        via=via(act.site.frames),
        at=call.at,
        step=call.step,
    )


@lru_cache(maxsize=4096)
def _path(op: str, site: Site) -> tuple[Frame, ...]:
    return told((Frame(C10D, 2900, op), *site.frames))


def user_line(site: Site) -> Frame:
    return next((frame for frame in site.frames if "site-packages" not in frame.file), site.frames[0])


def open_calls_of(rank: Rank) -> tuple[Collective, ...]:
    """The calls that threads stand in: synchronous ones, and handles that are waited for."""
    calls = [call for thread in rank.threads if thread.running or thread in rank.stood for call in _waited(thread)]
    return tuple(on_board(call) for call in calls if listed(call.act))


def _waited(thread: Thread) -> tuple[Issued, ...]:
    """Handles are waited for one after the other: the thread is in the first that is not complete."""
    if isinstance(thread.act, DeviceWait):
        return ()
    return tuple(call for call in thread.waits if not call.complete)[:1]


def reading_of(machine: Machine, rank: Rank, camera: Camera, now: float) -> Reading:
    heads = heads_of(machine, rank, camera)
    open_calls = () if rank.destroyed else open_calls_of(rank)
    listed_calls = [call for call in rank.calls if listed(call.act)]
    ring = [call for call in rank.calls[-camera.calls_kept :] if listed(call.act)]
    return Reading(
        Identity(
            rank.number, len(machine.ranks), rank.number, f"node-{rank.host}", 4000 + rank.number, 1_700_000_000.0, "j"
        ),
        taken_at=now,
        phase=rank.phase,
        phase_at=rank.moved_at,
        progress=_progress(rank, camera),
        ticker_at=_ticker(rank, camera, now),
        heads=heads,
        calls=tuple(on_board(call) for call in ring),
        calls_dropped=len(listed_calls) - len(ring),
        open_calls=open_calls,
        steps=() if camera.no_steps else tuple(rank.steps[-camera.steps_kept :]),
        loaders=() if camera.no_loaders else tuple(_loader(index, one) for index, one in rank.loaders.items()),
        exception=_error(rank),
        times=StepTimes(steps=len(rank.steps), last_s=0.1, slowest_recent_s=0.2),
        groups_made=_made(machine),
        lasting_threads=_lasting(rank),
    )


def _error(rank: Rank) -> ExceptionFacts | None:
    """Its error, with torch's frames where that came up in a call."""
    act, error = rank.failed_in, rank.exception
    if error is not None and isinstance(act, Wait) and act.backward:
        return replace(error, frames=joined(BACKWARD, error.frames))
    if error is None or not isinstance(act, CollectiveCall | Peer | Monitored):
        return error
    called = tuple(frame for frame in inside(act) if frame != HOOKED_WAIT)  # our own frame is left out of errors
    return replace(error, frames=joined(called, error.frames))


def _made(machine: Machine) -> tuple[GroupMade, ...]:
    """Every rank calls new_group for every group, members or not."""
    where = Frame(SCRIPT, 20, "setup")
    return tuple(
        GroupMade(index, comm.members, comm.name, done=True, where=where) for index, comm in enumerate(machine.comms)
    )


def _ticker(rank: Rank, camera: Camera, now: float) -> float:
    if not rank.living:
        return (rank.ended_at or now) - 0.3
    if rank.number in camera.stale or rank.state == "T":
        return now - camera.still_s - 20.0
    return now - 0.1


def _lasting(rank: Rank) -> tuple[int, ...] | None:
    return tuple(
        4000 + rank.number + 10_000 * thread.number
        for thread in rank.threads[1:]
        if thread.running and not thread.daemon
    )


def _progress(rank: Rank, camera: Camera) -> Progress:
    return Progress(
        None if camera.no_steps else rank.epoch,
        None if camera.no_steps else rank.batch,
        -1 if camera.no_steps else rank.step,
        rank.optimizer_steps,
        rank.forwards,
        draws=rank.draws,
        calls=len(rank.calls),
        completed=sum(completed_of(rank).values()),
        at=rank.moved_at,
    )


def _loader(index: int, state: LoaderState) -> LoaderFacts:
    where = state.where
    return LoaderFacts(
        index,
        state.length,
        epoch=state.epoch,
        drawn=state.drawn,
        exhausted=state.exhausted,
        left=state.left,
        num_workers=state.workers,
        training=state.training,
        where=user_line(where.site) if where is not None else None,
        dataset="Images",
        batch_size=8,
        drawn_per_epoch=tuple(state.counts),
        exhausted_per_epoch=tuple(state.ends),
    )
