"""What slow acts look like from outside: frames, processor time, files, the state of the process.

Several causes share one look, and one cause may end or not: a snapshot alone cannot tell.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.model import Frame, OpenFile

from .places import SITE_PACKAGES, STDLIB, TORCH

THREADING = f"{STDLIB}/threading.py"
BACKWARD = (
    Frame(f"{TORCH}/autograd/graph.py", 829, "_engine_run_backward"),
    Frame(f"{TORCH}/autograd/__init__.py", 354, "backward"),
    Frame(f"{TORCH}/_tensor.py", 630, "Tensor.backward"),
)


@dataclass(frozen=True, slots=True)
class Look:
    """One kind of slow act: the frames inside the user's line, and what the process does meanwhile."""

    inner: tuple[Frame, ...] = ()
    cpu: float = 0.0  # seconds of processor time between two samples
    io: int = 0
    state: str = "S"
    call: str | None = None
    channel: str | None = None
    blocked_on: OpenFile | None = None
    sleeps: float | None = None
    cause: str = "user-code-blocked"
    written: int = 0


LOOKS: dict[str, Look] = {
    "compute": Look(cpu=0.97, state="R"),
    "loop": Look(cpu=1.0, state="R"),
    "kernel-compute": Look((Frame(f"{TORCH}/nn/functional.py", 2700, "linear"),), cpu=0.99, state="R"),
    "read": Look(call="read", channel="folio_wait_bit_common", io=300 << 10),
    "read-fast": Look(call="read", io=64 << 20, cpu=0.1),
    "sleep": Look(call="clock_nanosleep", channel="hrtimer_nanosleep", sleeps=30.0),
    "lock": Look(
        (Frame(THREADING, 359, "Condition.wait"), Frame(f"{STDLIB}/queue.py", 171, "Queue.get")),
        call="futex",
        channel="futex_do_wait",
    ),
    "socket": Look(
        (Frame(f"{STDLIB}/socket.py", 720, "SocketIO.readinto"), Frame(f"{STDLIB}/http/client.py", 292, "begin")),
        call="recvfrom",
        channel="sk_wait_data",
        blocked_on=OpenFile(17, "socket 10.0.0.1:41234 -> 10.0.9.9:443"),
    ),
    "checkpoint": Look(
        (Frame(f"{TORCH}/serialization.py", 967, "_save"), Frame(f"{TORCH}/serialization.py", 850, "save")),
        io=48 << 20,
        written=48 << 20,
        cpu=0.3,
        cause="slow-checkpoint",
    ),
    "checkpoint-stuck": Look(
        (Frame(f"{TORCH}/serialization.py", 967, "_save"), Frame(f"{TORCH}/serialization.py", 850, "save")),
        state="S",
        call="write",
        channel="rpc_wait_bit_killable",
        blocked_on=OpenFile(21, "/mnt/nfs/run/step.pt", "nfs4"),
        cause="slow-checkpoint",
    ),
    "frozen": Look(state="D", call="read", channel="nfs_wait_on_request", cause="rank-frozen"),
    "compile": Look(
        (Frame(f"{TORCH}/_inductor/codecache.py", 3100, "compile"),), cpu=1.0, state="R", cause="compile-skew"
    ),
    "backward-compute": Look(
        BACKWARD,
        cpu=0.98,
        state="R",
    ),
    # Tensors that were put on a disk are read again in backward: no processor time, and no frame that says so.
    "backward-read": Look(
        BACKWARD,
        cpu=0.02,
        call="pread64",
    ),
    "loader": Look(
        (
            Frame(f"{TORCH}/utils/data/dataloader.py", 1275, "_MultiProcessingDataLoaderIter._try_get_data"),
            Frame(f"{TORCH}/utils/data/dataloader.py", 1440, "_MultiProcessingDataLoaderIter._get_data"),
            Frame(f"{TORCH}/utils/data/dataloader.py", 1482, "_MultiProcessingDataLoaderIter._next_data"),
            Frame(f"{TORCH}/utils/data/dataloader.py", 733, "_BaseDataLoaderIter.__next__"),
        ),
        call="poll",
        cause="loader-worker-blocked",
    ),
    "upload": Look(
        (Frame(f"{SITE_PACKAGES}/urllib3/connection.py", 500, "getresponse"),),
        call="recvfrom",
        channel="sk_wait_data",
        cause="exit-non-daemon-thread",
    ),
    "idle-thread": Look(
        (Frame(THREADING, 355, "Condition.wait"), Frame(f"{STDLIB}/queue.py", 171, "Queue.get")), call="futex"
    ),
}
LOOKS["loader-died"] = LOOKS["loader"]
LOOKS["loader-stopped"] = LOOKS["loader"]
LOOKS["loader-slow"] = LOOKS["loader"]
LOADER_KINDS = ("loader", "loader-died", "loader-stopped", "loader-slow")
