"""Exchanges in which each rank may give another number of elements, and in which all had given equally many until now.

To whom a rank gives how many is not recorded. That ranks differ is allowed; where they never did, it is what is new.
"""

from __future__ import annotations

from collections import Counter

from hangwatch import words
from hangwatch.model import Alternative, Certainty
from hangwatch.ranks.tensors import dtype_name, elements

from .finding import Finding, collective, victims
from .follow import Chain
from .matching import kind_of
from .mismatch import SPLITS_FIX
from .model import Call, Queues
from .names import at, say
from .stuck import Stuck

_ALWAYS_EQUAL = 3  # earlier exchanges from that line in which all ranks gave equally many, and none where they did not
_EARLIER_NUMBERS = 64  # numbers before the one that stands
_OF_ITS_ROOT = frozenset({"gather", "scatter"})  # the tensors of one rank are others than those of the rest

Sizes = tuple[int | None, int | None]


def odd_splits(queues: Queues, chain: Chain) -> Finding | None:
    """The finding on the few ranks that give another number of elements to an exchange than all others do."""
    root = chain.roots[0]
    if root.peers or root.group.guessed or set(root.calls) != set(root.group.members):
        return None
    sizes = {rank: _sizes(call) for rank, call in root.calls.items()}
    (usual, often), *others = Counter(sizes.values()).most_common()
    odd = sorted(rank for rank, own in sizes.items() if own != usual)
    if any(kind_of(call) != "all_to_all" for call in root.calls.values()) or not others or 2 * often <= len(sizes):
        return None
    equal = _equal_before(queues, root)
    return _finding(chain, odd, sizes, equal) if equal >= _ALWAYS_EQUAL and (None, None) not in sizes.values() else None


def sizes_differ(root: Stuck) -> bool:
    """Whether ranks gave, or expect, another number of elements in all."""
    return not root.peers and len(set(map(_sizes, root.calls.values()))) > 1


def unlike_types(root: Stuck) -> str:
    """The types in which ranks gave their tensors, in words, where these differ; "" where they do not.

    Also of calls whose types need not agree by what they are, such as a barrier: on the wire it is an all_reduce.
    """
    by_type: dict[str, list[int]] = {}
    for rank, call in ({} if root.peers else root.calls).items():
        by_type.setdefault(", ".join(map(dtype_name, call.input_dtypes)), []).append(rank)
    if len(by_type) < 2 or "" in by_type or any(kind_of(call) in _OF_ITS_ROOT for call in root.calls.values()):
        return ""
    return words.listed([f"{say(who, 'gives', 'give')} {name}" for name, who in sorted(by_type.items())])


def _sizes(call: Call) -> Sizes:
    return elements(call.inputs), elements(call.outputs)


def _equal_before(queues: Queues, root: Stuck) -> int:
    """In how many exchanges from that line all ranks gave equally many; 0 where they differed in one."""
    place, equal = root.call.where if root.call is not None else None, 0
    for number in range(root.number - 1, max(root.number - _EARLIER_NUMBERS, 0), -1):
        made = [lane.calls[at[0]] for lane in root.group.lanes.values() if (at := lane.places(number))]
        such = [queues.calls[index] for index in set(made)]  # in a large job most ranks share one entry
        if len(made) < len(root.group.members):
            continue
        if not all(kind_of(call) == "all_to_all" and call.where == place for call in such):
            continue
        if len(set(map(_sizes, such))) > 1:
            return 0
        equal += 1
    return equal


def _finding(chain: Chain, odd: list[int], sizes: dict[int, Sizes], equal: int) -> Finding:
    root = chain.roots[0]
    others = [rank for rank in sizes if rank not in odd]
    given = words.listed([f"rank {rank} gives {_said(sizes[rank])}" for rank in odd[:3]])
    return Finding(
        "collective-mismatch",
        Certainty.LIKELY,
        f"All ranks came to {collective(root)}{at(root.call)}, and it does not complete: {given}, where"
        f" {say(others, 'gives', 'give')} {_said(sizes[others[0]])}.",
        culprits=tuple((rank, root.calls[rank].where) for rank in odd),
        victims=victims(chain.path, odd),
        evidence=(
            f"in each of the {equal} such calls before it that are compared, all ranks gave equally many elements",
            "which rank gives how many elements to which (split sizes) is not recorded: unequal ones are allowed",
        ),
        alternatives=(
            Alternative(
                "interconnect-stall",
                Certainty.UNDETERMINED,
                "where all split sizes fit, the network, the links between the GPUs or a GPU holds it up",
            ),
        ),
        fix=SPLITS_FIX,
        passing=True,
    )


def _said(sizes: Sizes) -> str:
    given, made = sizes
    said = f"{given:,} elements" if given is not None else "elements"
    return f"{said} for {made:,}" if made is not None and made != given else said
