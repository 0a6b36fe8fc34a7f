"""What the calls paired under one number must share: the operation, and where it asks for it the size and type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hangwatch import words
from hangwatch.ranks.ledger import family
from hangwatch.ranks.sides import by_value
from hangwatch.ranks.tensors import dtype_name, elements

from .model import Call, Communicator

# A call of these completes on no rank before every rank has enqueued it.
SYNCHRONISING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
_BOTH = frozenset({"all_reduce", "broadcast", "all_gather", "reduce_scatter"})  # inputs and outputs alike on all ranks
_INPUTS = frozenset({"reduce", "gather"})
_OUTPUTS = frozenset({"scatter"})
_NO_TYPE = "UNKNOWN_SCALAR"  # of what is not there
_UNEVEN = ("_v", "_v_single")  # each rank brings a number of elements of its own


@dataclass(frozen=True, slots=True)
class Shape:
    """What a call must share with its partners; None and "" are not compared."""

    kind: str
    given: int | None = None  # elements of the inputs
    made: int | None = None  # elements of the outputs
    dtypes: str = ""

    def __str__(self) -> str:
        counts = [f"{count:,} {word}" for count, word in ((self.given, ""), (self.made, "")) if count is not None]
        count = counts[0].strip() if counts else ""
        if self.given is not None and self.made is not None and self.made != self.given:
            count = f"{self.given:,} to {self.made:,}"
        noun = "element" if count == "1" else "elements"
        said = ", ".join(filter(None, (f"{count} {noun}" if count else "", self.dtypes)))
        return f"{self.kind} ({said})" if said else self.kind


def kind_of(call: Call) -> str:
    """The kind of an operation, whichever of torch's names it has."""
    return family(call.op) or call.op


def shape(call: Call) -> Shape:
    """What `call` must share with its partners, as far as it was recorded."""
    kind = kind_of(call)
    uneven = call.op.endswith(_UNEVEN) or kind == "all_to_all"
    if not uneven and kind not in (_BOTH | _INPUTS | _OUTPUTS):
        return Shape(kind)
    if kind in _OUTPUTS and _is_turned(call):
        call = replace(call, inputs=call.outputs, outputs=call.inputs, output_dtypes=call.input_dtypes)
    given = elements(call.inputs) if kind not in _OUTPUTS else None
    made = elements(call.outputs) if kind not in _INPUTS else None
    dtypes = {
        dtype_name(name)
        for names, counted in ((call.input_dtypes, given), (call.output_dtypes, made))
        for name in names
        if counted is not None
    }
    said = "/".join(sorted(filter(None, dtypes)))
    return Shape(kind, dtypes=said) if uneven else Shape(kind, given, made, said)


def _is_turned(call: Call) -> bool:
    """Of a scatter NCCL records as input what the rank gets, and as outputs what the root gives: others have none."""
    of_root = len(call.inputs) == 1 < len(call.outputs)
    return of_root or (len(call.inputs) == 1 and call.output_dtypes == (_NO_TYPE,))


def sides(calls: Mapping[int, Call]) -> dict[Shape, list[int]]:
    """The ranks by what they called; one side where all agree. What one rank's record lacks is not compared."""
    shapes = {rank: shape(call) for rank, call in calls.items()}
    kinds = by_value({rank: Shape(one.kind) for rank, one in shapes.items()})
    if len(kinds) > 1:
        return by_value(shapes)
    given = all(one.given is not None for one in shapes.values())
    made = all(one.made is not None for one in shapes.values())
    typed = all(one.dtypes for one in shapes.values())
    return by_value(
        {
            rank: Shape(one.kind, one.given if given else None, one.made if made else None, one.dtypes if typed else "")
            for rank, one in shapes.items()
        }
    )


def malformed(call: Call, group: Communicator) -> str:
    """Why a call's own sizes do not fit each other, in words; "" where they do."""
    kind, given, made = kind_of(call), elements(call.inputs), elements(call.outputs)
    if (
        group.guessed
        or given is None
        or made is None
        or call.op.endswith(_UNEVEN)
        or call.op.startswith(("ALLGATHER", "REDUCE_"))
    ):
        return ""
    size = len(group.members)
    wanted = {"all_reduce": given, "all_gather": given * size}.get(kind)
    if wanted is not None and made != wanted:
        return (
            f"{kind} of {words.plural(given, 'element')} on {size} ranks makes {wanted:,}, and its output has {made:,}"
        )
    if kind == "reduce_scatter" and given != made * size:
        into = f"{kind} into {words.plural(made, 'element')}"
        return f"{into} on {size} ranks takes {made * size:,}, and its input has {given:,}"
    return ""


def unbalanced(calls: Mapping[int, Call], group: Communicator) -> str:
    """Whether the ranks of an all_to_all send in all another number of elements than they expect; in words."""
    if (
        group.guessed
        or set(calls) != set(group.members)
        or any(kind_of(call) != "all_to_all" for call in calls.values())
    ):
        return ""
    given = sum(elements(call.inputs) or 0 for call in calls.values())
    made = sum(elements(call.outputs) or 0 for call in calls.values())
    return f"the ranks send {words.plural(given, 'element')} in all and expect {made:,}" if given != made else ""


def roots_apart(calls: Mapping[int, Call], group: Communicator) -> str:
    """Whether the ranks of a gather or scatter do not agree on the one root, told by who brings its sizes; in words."""
    kinds = {kind_of(call) for call in calls.values()}
    if group.guessed or set(calls) != set(group.members) or kinds not in ({"gather"}, {"scatter"}):
        return ""
    collects = kinds == {"gather"}
    at_root = {rank: elements(call.outputs if collects else call.inputs) for rank, call in calls.items()}
    roots = sorted(rank for rank, count in at_root.items() if count)
    if not 2 <= len(roots) < len(calls):  # what all ranks have says nothing of a root
        return ""
    return f"{words.ranks(roots)} are each root of it"


def odd_ones(found: Mapping[Shape, list[int]]) -> list[int]:
    """Ranks that differ from what more than half did; none where no more than half agree."""
    largest = max(found.values(), key=len)
    if 2 * len(largest) <= sum(map(len, found.values())):
        return []
    return sorted(rank for ranks in found.values() if ranks is not largest for rank in ranks)
