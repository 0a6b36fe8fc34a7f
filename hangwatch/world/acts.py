"""What a thread of a simulated rank can do: its program is a list of these, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.model import Phase

from .places import Site


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective call. `via` is how the program reaches it: "python", "gradients" (DDP's backward) or "buffers".

    With `handle` the call is asynchronous, and a later `Wait` waits for it. `root` is a global rank.
    """

    op: str
    site: Site
    group: str = "0"
    size: int = 8
    dtype: str = "Float"
    via: str = "python"
    root: int | None = None
    handle: str = ""
    backend: str = ""  # of a group with two backends, the one that this call uses


@dataclass(frozen=True, slots=True)
class Peer:
    """A point-to-point call ("send" or "recv"); asynchronous with a `handle`, as isend and irecv are."""

    op: str
    peer: int
    site: Site
    group: str = "0"
    size: int = 8
    tag: int = 0
    handle: str = ""
    batch: str = ""  # calls of one batch_isend_irecv share a name, and run at once on the device


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits for every call that was made with this handle. `backward`: DDP waits for its buckets inside backward."""

    handle: str
    site: Site
    backward: bool = False


@dataclass(frozen=True, slots=True)
class Monitored:
    """monitored_barrier with a timeout of its own: it raises when members do not come."""

    site: Site
    group: str = "0"


@dataclass(frozen=True, slots=True)
class DeviceWait:
    """The host waits for its device: `.item()` (no Python frame) or `torch.cuda.synchronize()`."""

    site: Site
    everything: bool = False


@dataclass(frozen=True, slots=True)
class Draw:
    """A DataLoader gives a batch; a training loader's batch begins a step."""

    loader: int
    epoch: int
    batch: int
    length: int | None
    site: Site
    training: bool = True
    workers: int = 0


@dataclass(frozen=True, slots=True)
class LoopEnd:
    """The loop over a loader ends: by StopIteration, by leaving it, or (neither) after exactly `len` draws."""

    loader: int
    exhausted: bool = True
    left: bool = False


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward of the model begins, with gradients or (evaluation) without."""

    grad: bool = True
    step: bool = False  # there is no DataLoader: the forward begins a step


@dataclass(frozen=True, slots=True)
class Enter:
    """The rank enters a phase."""

    phase: Phase


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer step; `step`: it ends a step of this rank, since nothing better counts them."""

    step: bool = False


@dataclass(frozen=True, slots=True)
class Slow:
    """Takes long. With `forever` it never ends, which looks the same from outside.

    `kind` says what it looks like: see `hangwatch.world.looks`. `fault` is the index of the fault that put it here.
    """

    kind: str
    site: Site
    forever: bool = False
    fault: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A fault takes effect here: a call is left out, or the program goes another way."""

    fault: int


@dataclass(frozen=True, slots=True)
class Start:
    """Starts the background thread of this number."""

    thread: int


@dataclass(frozen=True, slots=True)
class Raise:
    """An error that nothing catches ends the thread."""

    type: str
    message: str
    site: Site
    lingers: bool = False  # a non-daemon thread keeps the process alive


@dataclass(frozen=True, slots=True)
class Die:
    """The process ends at once: a signal (negative) or os._exit."""

    code: int


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGSTOP."""


@dataclass(frozen=True, slots=True)
class Destroy:
    """destroy_process_group."""


@dataclass(frozen=True, slots=True)
class End:
    """The main program ends; the process ends with its last non-daemon thread."""


Act = (
    Collective
    | Peer
    | Wait
    | Monitored
    | DeviceWait
    | Draw
    | LoopEnd
    | Forward
    | Enter
    | Optimizer
    | Slow
    | Mark
    | Start
    | Raise
    | Die
    | Stop
    | Destroy
    | End
)


@dataclass(frozen=True, slots=True)
class Line:
    """An act with its place in the training: what faults look for when they change a program."""

    act: Act
    role: str = ""
    epoch: int = -1
    batch: int = -1


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """A thread beside the main one. `starts` false: another act starts it."""

    name: str
    lines: tuple[Line, ...]
    daemon: bool = True
    starts: bool = True
    site: Site | None = None
