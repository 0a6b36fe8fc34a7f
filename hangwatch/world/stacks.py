"""The stacks of a simulated rank, as py-spy would show them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from hangwatch.model import Frame, Phase, ThreadStack

from .acts import Collective as CollectiveCall
from .acts import DeviceWait, Monitored, Peer, Wait
from .calls import Thread
from .camera import Camera
from .looks import BACKWARD, LOOKS, THREADING
from .machine import Machine
from .places import AGENT, SCRIPT, TORCH, Site
from .ranks import Rank

C10D = f"{TORCH}/distributed/distributed_c10d.py"
LOGGER = Frame(f"{TORCH}/distributed/c10d_logger.py", 83, "wrapper")
HOOKED_WAIT = Frame(f"{AGENT}/hooks/collectives.py", 145, "wait")
DDP = f"{TORCH}/nn/parallel/distributed.py"
BUFFERS = tuple(
    Frame(DDP, line, f"DistributedDataParallel.{name}")
    for line, name in (
        (2171, "_distributed_broadcast_coalesced"),
        (2155, "_sync_module_buffers"),
        (2130, "_sync_buffers"),
        (1560, "_pre_forward"),
        (1639, "forward"),
    )
)
TICKER = ThreadStack(
    0,
    "hangwatch-ticker",
    (
        Frame(THREADING, 331, "Condition.wait"),
        Frame(THREADING, 629, "Event.wait"),
        Frame(f"{AGENT}/ticker.py", 51, "Ticker._run"),
        Frame(THREADING, 1010, "Thread.run"),
    ),
)
JOINING = (Frame(THREADING, 1147, "Thread._wait_for_tstate_lock"), Frame(THREADING, 1590, "_shutdown"))
SYNCHRONIZE = Frame("libcudart.so.12", 0, "cudaStreamSynchronize", native=True)
# What a wait for the device looks like from below a line of the user's: .item(), .cpu(), and a first launch.
WAITS = tuple(
    Frame("libcuda.so.1", 0, function, native=True)
    for function in ("cuStreamSynchronize", "cuMemcpyDtoHAsync_v2", "cuLaunchKernel")
)
DEVICE_LINE = Frame(f"{TORCH}/cuda/__init__.py", 1040, "synchronize")


def stacks_of(machine: Machine, rank: Rank, camera: Camera) -> tuple[ThreadStack, ...]:
    found = [_main_stack(machine, rank, camera)]
    for thread in rank.threads[1:]:
        if thread.running:
            frames = frames_of(machine, thread, camera)
            found.append(ThreadStack(4000 + rank.number + 10_000 * thread.number, thread.name, frames))
    if rank.phase not in (Phase.MAIN_DONE, Phase.FAILED):
        found.append(TICKER)
    return tuple(found)


def crash_stacks(machine: Machine, rank: Rank, camera: Camera) -> tuple[ThreadStack, ...]:
    """What Python's faulthandler writes of an aborted process: no native frames, the main thread last."""
    camera = replace(camera, native=False)
    found = [
        ThreadStack(
            index,
            "MainThread" if thread.main else "",
            tuple(frame for frame in frames_of(machine, thread, camera) if not frame.native),
            main=thread.main,
            source="crash",
        )
        for index, thread in enumerate(reversed(rank.stood))
    ]
    return tuple(found)


def _main_stack(machine: Machine, rank: Rank, camera: Camera) -> ThreadStack:
    thread = rank.threads[0]
    tid = 4000 + rank.number
    if not thread.running:
        return ThreadStack(tid, "MainThread", JOINING, main=True)
    act = thread.act
    site: Site | None = getattr(act, "site", None)
    frames = frames_of(machine, thread, camera)
    if site is None or not camera.source or site.frames[0].file != SCRIPT:
        return ThreadStack(tid, "MainThread", frames, main=True)
    return ThreadStack(
        tid, "MainThread", frames, main=True, block=site.block, in_loop=site.in_loop, loop=site.loop, guard=site.guard
    )


def frames_of(machine: Machine, thread: Thread, camera: Camera) -> tuple[Frame, ...]:
    act = thread.act
    if act is None:
        return ()
    if thread.slow is not None:
        return joined(LOOKS[thread.slow.kind].inner, thread.slow.site.frames)
    if isinstance(act, DeviceWait):
        below = SYNCHRONIZE if act.everything else WAITS[camera.way % len(WAITS)]
        native = (below,) if camera.native else ()
        return joined((*native, DEVICE_LINE) if act.everything else native, act.site.frames)
    if isinstance(act, Wait):
        return joined(BACKWARD if act.backward else (HOOKED_WAIT,), act.site.frames)
    if isinstance(act, CollectiveCall | Peer | Monitored):
        return joined(inside(act), act.site.frames)
    site = getattr(act, "site", None)
    return site.frames if site is not None else ()


@lru_cache(maxsize=4096)
def joined(inner: tuple[Frame, ...], outer: tuple[Frame, ...]) -> tuple[Frame, ...]:
    return inner + outer


def inside(act: CollectiveCall | Peer | Monitored) -> tuple[Frame, ...]:
    """The frames between the user's line and the wait of a synchronous call."""
    if isinstance(act, CollectiveCall) and act.via == "buffers":
        return BUFFERS
    if isinstance(act, CollectiveCall) and act.via == "gradients":
        return BACKWARD
    name = "monitored_barrier" if isinstance(act, Monitored) else act.op
    return _PUBLIC.get(name) or _public(name)


@lru_cache
def _public(op: str) -> tuple[Frame, ...]:
    return (HOOKED_WAIT, Frame(C10D, 2900, op), LOGGER)


_PUBLIC: dict[str, tuple[Frame, ...]] = {
    "monitored_barrier": (Frame(C10D, 5420, "monitored_barrier"),),
}
