"""Where ranks left the order of calls of the others: what the comparison of histories finds."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.model import Frame

from .counts import Odd
from .matching import kind_of
from .model import Call, Communicator
from .names import apart, of_no_line
from .readings import Kind


@dataclass(frozen=True, slots=True)
class Departure:
    """Where ranks left the order of the others.

    `usual` is what the others called as `number`, `own` what these ranks did. `count` calls were left out or added.
    `agreeing` calls behind it agree again. `majority` and `habit` are the witnesses: more than half of the group did
    otherwise; these ranks themselves did otherwise before.
    """

    kind: Kind
    group: Communicator
    ranks: tuple[int, ...]
    number: int
    usual: Call
    own: Call
    count: int = 1
    agreeing: int = 0
    majority: bool = False
    habit: int = 0  # how often
    repeated: bool = False  # the own call is one that the others had made before
    ended: bool = False  # whole rounds were left out, before a call that is new: the end of a loop
    rounds: int = 0  # the most rounds that the loop had before
    against: tuple[int, ...] = ()  # ranks that kept to `usual`
    sited: bool = True  # call sites were compared: the records have them, or no rank's alone lacks them
    beside: tuple[int, ...] = ()  # ranks of other groups that called `usual` in the same place of the same order
    lone: bool = False  # `own` and all that these ranks called from there on are calls that no other rank makes
    left: int = 0  # how often these ranks had left the loop to `own` before, as they do here, where the others go on
    stayed: int = 0  # how often the others had left it to `usual` before, as they do here, where these ranks go on
    few: bool = False  # most did otherwise, where nothing tells which side left a call out or added one
    by_most: bool = False  # of most ranks, by the habit of all of them
    again: bool = False  # the added calls are those that these ranks made just before: one more turn of a loop
    begun_again: bool = False  # no loop has ever gone back from there: what was to come behind these calls was left out
    turn_less: bool = False  # the calls left out are those that all made just before: one turn of a loop fewer
    twice: bool = False  # a call made once more, right behind the first time, explains what was left out as well
    instead: int = 0  # so many calls of a turn made once more explain it too, or left out where some were added
    by_end: bool = False  # of two readings which explain all, other facts than the order of calls tell one
    scattered: bool = False  # one call, or one operation, left out or added between others on which the orders agree
    early: bool = False  # it lies before what is recorded, so that `number` and `usual` only show it
    counted: Odd | None = None  # the ranks of other groups that tell it by how many calls they made
    went_on: bool = True  # behind a call that was left out, these ranks made such a call again: they had a next round
    bundled: bool = False  # among coalesced calls, which share a number: those behind them are paired as before
    in_step: bool = False  # told by the steps of live ranks: they made more of these calls than in every step before
    changed: bool = False  # the usual calls from the same lines, on tensors of sizes that are new to all
    line: Frame | None = None  # the innermost one that tells an added call apart from others of its place
    run: bool = False  # one side left a run of calls, which the other one continued: by how many is not known

    @property
    def lines(self) -> tuple[Frame | None, Frame | None]:
        """The lines by which the own call and the usual one are told apart."""
        own, usual = apart(self.own, self.usual)
        return (self.line if self.line is not None and not self.at_one_line else own), usual

    @property
    def at_one_line(self) -> bool:
        """Both calls come from one line: the call itself is another one, and not the path that led to it."""
        return self.own.where == self.usual.where

    @property
    def unplaced(self) -> bool:
        """All that both sides recorded before are calls like the one that is missing, and older ones are lost."""
        if self.kind is not Kind.SKIPPED or not self.against or self.scattered:
            return False
        lanes = [self.group.lanes[rank] for rank in (self.ranks[0], self.against[0])]
        before = [lane.calls[: lane.places(self.number).start] for lane in lanes]
        here = lanes[1].places(self.number)
        usual = lanes[1].calls[here.start] if here else -1
        return all(lane.lost for lane in lanes) and all(set(calls) == {usual} for calls in before)

    @property
    def since(self) -> int:
        """The first of the calls like the usual one that come one behind the other, up to it: any may be missing."""
        lane = self.group.lanes.get(self.against[0]) if self.against else None
        places = lane.places(self.number) if lane is not None else range(0)
        if lane is None or not places:
            return self.number
        calls, place = lane.calls, places.start
        while place and calls[place - 1] == calls[places.start]:
            place -= 1
        return lane.numbers[place]

    @property
    def only_one_behind(self) -> bool:
        """One call was left out, and all that is recorded behind it is the next one: the two may only be swapped."""
        one = self.kind is Kind.SKIPPED and self.count == 1 and not self.scattered
        return one and self.agreeing <= 1 and not self.went_on and not self.ended

    @property
    def synchronises(self) -> bool:
        """Whether ranks went on from a loop to the gradients' calls, after another number of its turns than others."""
        call = self.own if self.turn_less else self.usual
        return (self.turn_less or self.again) and self.sited and _is_of_gradients(call)

    @property
    def reduces_more(self) -> bool:
        """Whether what these ranks made more of are turns of the gradients' calls alone."""
        return self.kind is Kind.EXTRA and self.again and self.sited and _is_of_gradients(self.own)

    @property
    def sited_habit(self) -> int:
        """Its habit in its group; calls of several lines look alike without call sites: their order tells little."""
        return self.habit if self.own.frames else 0

    def is_like(self, other: Departure) -> bool:
        return (self.number, self.kind, self.own) == (other.number, other.kind, other.own)

    @property
    def sides(self) -> tuple[tuple[tuple[int, ...], Call], tuple[tuple[int, ...], Call]]:
        """Both sides with what they call there, these ranks first."""
        others = tuple(rank for rank in self.against if rank not in self.ranks)
        return (self.ranks, self.own), (others, self.usual)


def _is_of_gradients(call: Call) -> bool:
    """Backward makes their calls from no line of the program."""
    return kind_of(call) in ("reduce_scatter", "all_reduce") and of_no_line(call)
