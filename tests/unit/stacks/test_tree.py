"""The merged stack tree."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model import Frame, RankEvidence, StackNode, ThreadStack
from hangwatch.stacks.tree import DEEPEST, leaves, merged, of_ranks
from hangwatch.wire import codec
from tests import examples

MAIN, TRAIN, LOSS, SAVE = (
    Frame("train.py", line, name) for line, name in enumerate(("main", "train", "loss", "save"), 1)
)


def test_equal_frames_are_merged_from_the_outermost() -> None:
    # GIVEN two ranks in loss, one in save and one in main itself (stacks are innermost first)
    stacks = [(0, (LOSS, TRAIN, MAIN)), (1, (SAVE, MAIN)), (2, (LOSS, TRAIN, MAIN)), (3, (MAIN,))]
    # WHEN they are merged
    tree = merged(stacks)
    # THEN the branch with most ranks comes first
    loss = StackNode(LOSS, (0, 2))
    assert tree == (StackNode(MAIN, (0, 1, 2, 3), (StackNode(TRAIN, (0, 2), (loss,)), StackNode(SAVE, (1,)))),)
    # AND every distinct stack is a leaf, also one that ends where others go on
    assert list(leaves(tree)) == [((MAIN,), (3,)), ((MAIN, TRAIN, LOSS), (0, 2)), ((MAIN, SAVE), (1,))]


def test_only_main_threads_count_unless_told_otherwise() -> None:
    stacks = (ThreadStack(1, "MainThread", (MAIN,), main=True), ThreadStack(2, "log", (SAVE,)))
    rank = RankEvidence(0, stacks=stacks)
    assert of_ranks([rank]) == (StackNode(MAIN, (0,)),)
    assert of_ranks([rank], main_only=False) == (StackNode(MAIN, (0,)), StackNode(SAVE, (0,)))


def test_nothing_known_gives_no_tree() -> None:
    assert of_ranks([RankEvidence(0)]) == ()
    assert merged([(0, ())]) == ()
    assert list(leaves(())) == []


def test_runaway_recursion_loses_its_middle_and_fits_into_json() -> None:
    frames = tuple(Frame("deep.py", line, f"f{line}") for line in range(1000, 0, -1))
    tree = merged([(0, frames)])
    ((path, _),) = leaves(tree)
    assert len(path) == DEEPEST
    assert path[0].line == 1
    assert path[-1].line == 1000
    assert Frame("", 0, "(905 frames left out)") in path
    assert codec.decode(StackNode, codec.encode(tree[0])) == tree[0]


@given(st.dictionaries(st.integers(0, 50), st.lists(st.sampled_from((MAIN, TRAIN, LOSS)), min_size=1, max_size=4)))
def test_every_stack_is_found_again(stacks: dict[int, list[Frame]]) -> None:
    tree = merged((rank, tuple(frames)) for rank, frames in stacks.items())
    found = {rank: list(path[::-1]) for path, ranks in leaves(tree) for rank in ranks}
    assert found == stacks


def test_sixteen_thousand_ranks_take_a_moment() -> None:
    stack = examples.BACKWARD_STACK * 3
    ranks = [(rank, (Frame("own.py", rank % 7, "f"), *stack)) for rank in range(16384)]
    began = time.process_time()
    tree = merged(ranks)
    assert time.process_time() - began < 5  # measured 0.1 s
    assert tree[0].ranks == tuple(range(16384))
    assert len(list(leaves(tree))) == 7
