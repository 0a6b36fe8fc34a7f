"""Frames, the stacks of threads, and the merged tree of many."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack; `line` is 0 where it is not known (native frames)."""

    file: str
    line: int
    function: str
    native: bool = False

    @property
    def source_line(self) -> tuple[str, int]:
        """The line where it stands, whichever function that is in."""
        return self.file, self.line

    @property
    def scope(self) -> tuple[str, str]:
        """The function in which it stands, whatever the line."""
        return self.file, self.function


@dataclass(frozen=True)
class WayOut:
    """A line by which a loop can be left, in the words of its source: "if guard.requested: break"."""

    where: Frame
    text: str


@dataclass(frozen=True)
class Condition:
    """A condition in the words of its source, `if balance.active`, and what it asks for (see `Bypass.asks`)."""

    where: Frame
    text: str
    asks: str = ""


@dataclass(frozen=True)
class LoopFacts:
    """A loop of the user's, as its source shows it: how one turn, or all of it, can end early. Frames are places.

    `counted` means that a number says how many turns it makes (range, while), rather than the data.
    """

    where: Frame
    counted: bool = False
    skips: tuple[Frame, ...] = ()  # `continue`, and except clauses after which the next turn follows
    leaves: tuple[Frame, ...] = ()  # `break` and `return`
    swallows: Frame | None = None  # the except clause around the loop that lets an error go no further
    outer: tuple[Frame, ...] = ()  # the loops around it, also those of callers, the innermost first
    outer_leaves: tuple[tuple[Frame, ...], ...] = ()  # `break` and `return` of each of them
    exits: tuple[Frame, ...] = ()  # `sys.exit()` and the like, in it and in those loops: they end the process
    asks_store: bool = False  # it asks the job's store (`store.get`, `store.add`), as a wait for other ranks does
    last: int = 0  # the last line of its body; 0 where that is not known
    drained: tuple[Frame, ...] = ()  # those of `leaves` and `outer_leaves` where an iterator has no more items
    of_items: tuple[Frame, ...] = ()  # those of `leaves` where the user's generator ends that makes its items
    ways_out: tuple[WayOut, ...] = ()  # what stands at `leaves` and `outer_leaves`
    endless: bool = False  # `while True`, with no way out
    bounded: bool = False  # it ends by itself: with its items, after a number of turns, or at a time
    items: str = ""  # what a `for` goes through, in the words of its source: "sampler"
    outer_items: tuple[str, ...] = ()  # what each of the loops in `outer` goes through, "" for a `while`
    updates: tuple[Condition, ...] = ()  # those of a turn that lead to a backward or update ahead of the thread's line

    def holds(self, file: str, line: int) -> bool:
        """A line lies in it, its own first line included; none where its last line is not known."""
        return file == self.where.file and self.where.line <= line <= self.last


@dataclass(frozen=True)
class ThreadStack:
    """One thread of a process, innermost frame first. Source: py-spy, or faulthandler where `source` says so."""

    thread_id: int
    name: str
    frames: tuple[Frame, ...]
    owns_gil: bool | None = None
    active: bool | None = None
    main: bool = False
    source: str = "py-spy"
    block: str = (
        ""  # "except", "finally" or "with": the block around the user's innermost line, where its source could be read
    )
    handler: str = ""  # function of a frame that the source registers as a signal handler
    in_loop: bool | None = None  # whether one of the user's lines stands in a loop, where the source could be read
    loop: LoopFacts | None = None  # the innermost of these loops
    entered: tuple[str, ...] = ()  # what the `with` blocks around the user's lines hold, innermost first: "self.lock"
    entering: tuple[str, ...] = ()  # what the `with` statement at the innermost line is about to enter
    each_turn: Frame | None = None  # the line of a training loop, each turn of which leads to where the thread stands
    guard: str = ""  # "rank": only some ranks come here; "other": some other condition; "none"; "" where not known


@dataclass(frozen=True)
class StackNode:
    """A node of the merged stack tree: `ranks` are those with this frame on the way from the root."""

    frame: Frame
    ranks: tuple[int, ...]
    children: tuple[StackNode, ...] = ()
