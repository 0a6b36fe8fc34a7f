from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from hangwatch.model import Frame
from hangwatch.source.guards import guard_around

SOURCE = dedent(
    """\
    boss = rank == 0

    def main():
        if __name__ == "__main__":
            step()
        for epoch in range(2):
            step()
            if boss:
                save()
            if epoch % 2:
                log()
            if self.is_main_process():
                evaluate()
            else:
                wait()
        done() if local_rank == 0 else None
        trainer.master and done()

    def early():
        if dist.get_rank() != 0:
            return
        save()

    def late():
        save()
        if os.environ["RANK"] != "0":
            return

    @rank_zero_only
    def decorated():
        save()

    if verbose:
        for part in parts:
            step()
    """
)
TREE = ast.parse(SOURCE)


def guard(*lines: int) -> str:
    return guard_around([(Frame("/home/ann/train.py", line, "f"), TREE) for line in lines])


@pytest.mark.parametrize("line", [9, 13, 15, 16, 17, 22, 31])
def test_a_place_where_only_some_ranks_come(line: int) -> None:
    assert guard(line) == "rank"
    assert guard(100, line) == "rank"  # in a function that is called from there


@pytest.mark.parametrize(("line", "expected"), [(11, "other"), (7, "none"), (5, "none"), (25, "none"), (35, "none")])
def test_a_place_where_every_rank_comes_or_for_another_reason(line: int, expected: str) -> None:
    assert guard(line) == expected


def test_a_guard_of_a_caller_counts_beyond_the_loop() -> None:
    assert guard(7, 13) == "rank"  # a loop in what only the main process calls
    assert guard(7, 11) == "none"
    assert guard() == ""


@pytest.mark.parametrize(
    "call",
    ["gather(part, parts if rank == 0 else None)", "gather(part, rank == 0 and parts)", "send(0 if rank else 1)"],
)
def test_an_argument_that_differs_by_rank_does_not_guard_the_call(call: str) -> None:
    tree = ast.parse(f"def main():\n    {call}\n")
    assert guard_around([(Frame("/home/ann/train.py", 2, "main"), tree)]) == "none"


@pytest.mark.parametrize(
    ("made", "condition", "expected"),
    [
        ("first, last = rank == 0, step == 9", "first", "rank"),
        ("first, last = rank == 0, step == 9", "last", "other"),
        ("writer = Writer() if rank == 0 else None", "writer", "rank"),
        ("writer = Writer() if rank == 0 else None", "writer is not None", "rank"),
        ("self.log = None\n    if self.is_main:\n        self.log = Log()", "self.log", "rank"),
        ("writer = Writer() if verbose else None", "writer", "other"),
        ("writer = None\n    if verbose:\n        writer = Writer()", "writer", "other"),
        ("if rank == 0:\n        path = make()\n    path = find()", "path", "other"),
        ("r, n = dist.get_rank(), 4", "r == 0", "rank"),
        ("r = int(os.environ['RANK'])", "not r", "rank"),
        ("r = get_rank()\n    for r in rows:\n        pass", "r > 0", "other"),
        ("net = Net(rank)", "net.ready", "other"),
        ("r = get_rank()\n    log = None\n    if r == 0:\n        log = Log()", "log", "rank"),
        ("rank = get_rank() if dist.is_initialized() else 0\n    world = size()", "world > 1", "other"),
    ],
)
def test_what_only_some_ranks_have_asks_for_the_rank(made: str, condition: str, expected: str) -> None:
    source = f"def main():\n    {made}\n    if {condition}:\n        step()\n"
    line = source.count("\n")
    assert guard_around([(Frame("/home/ann/train.py", line, "main"), ast.parse(source))]) == expected


@pytest.mark.parametrize(
    "test",
    [
        "state.is_world_process_zero and state.global_step in (6, 12)",
        "accelerator.process_index == 0",
        "self.is_local_process_zero()",
        "state.is_first_process",
        "self.args.should_save",
        "training_args.should_log",
    ],
)
def test_the_words_of_trainers_for_a_rank(test: str) -> None:
    tree = ast.parse(f"def main():\n    if {test}:\n        save()\n")
    assert guard_around([(Frame("/home/ann/train.py", 3, "main"), tree)]) == "rank"


def test_what_a_training_is_told_to_save_is_alike_on_all_ranks() -> None:
    tree = ast.parse("def main():\n    if control.should_save:\n        save()\n")
    assert guard_around([(Frame("/home/ann/train.py", 3, "main"), tree)]) == "other"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("if report and early:", "if report and not early:", "other"),
        ("if rank == 0:", "if rank != 0:", "other"),
        ("if rank == 0:", "if rank == 1:", "rank"),
        ("if rank == 0:", "if rank == 0:", "rank"),
        ("if rank == 0 or late:", "if rank != 0:", "rank"),  # a rank may come there twice
    ],
)
def test_a_condition_that_leads_to_a_function_both_ways_keeps_no_rank_from_it(
    first: str, second: str, expected: str
) -> None:
    """GIVEN ranks that call the same two functions in another order THEN none of them comes alone to one of the two."""
    lines = ("early = rank == 1", first, "    metrics()", "gradients()", second, "    metrics()")
    text = "\n".join((*lines, "def metrics():", "    reduce()", ""))
    tree = ast.parse(text)
    frames = [(Frame("/home/ann/train.py", 8, "metrics"), tree), (Frame("/home/ann/train.py", 3, "<module>"), tree)]
    assert guard_around(frames) == expected


@pytest.mark.parametrize(
    "test",
    [
        "RANK != -1",
        "local_rank >= 0",
        "args.local_rank > -1",
        "rank is not None",
        "world_size > 1",
        "dist.is_initialized()",
        "dist.is_available() and dist.is_initialized()",
        "not dist.is_initialized() or RANK == -1",
    ],
)
def test_whether_a_job_is_distributed_has_one_answer_on_all_ranks(test: str) -> None:
    tree = ast.parse(f"def main():\n    if {test}:\n        barrier()")
    assert guard_around([(Frame("/home/ann/train.py", 3, "main"), tree)]) == "none"


@pytest.mark.parametrize(
    "test",
    [
        "RANK in (-1, 0)",
        "rank > 0",
        "RANK != -1 and RANK == 0",
        "rank != world_size - 1",
        "self.rank_zero_logger is not None",
        "leader is not None",
    ],
)
def test_a_condition_on_the_rank_is_one_beside_that(test: str) -> None:
    tree = ast.parse(f"def main():\n    if {test}:\n        barrier()")
    assert guard_around([(Frame("/home/ann/train.py", 3, "main"), tree)]) == "rank"


@pytest.mark.parametrize("test", ["dist.is_initialized() and ready", "cache.is_initialized()", "n_steps > 1"])
def test_another_condition_is_one(test: str) -> None:
    tree = ast.parse(f"def main():\n    if {test}:\n        barrier()")
    assert guard_around([(Frame("/home/ann/train.py", 3, "main"), tree)]) == "other"


TOPOLOGY = """\
class Topology:
    def __init__(self, parts):
        self.rank = dist.get_rank()
        self.stage = self.rank // parts
        self.seed = 7 + self.rank
        self.half = parts // 2
    @property
    def is_last(self):
        \"\"\"It has the loss.\"\"\"
        return self.stage == self.parts - 1
    def is_wide(self):
        return self.half > 2
    def is_new(self):
        self.stages += 1
        return self.stage == 0
def writes():
    return int(os.environ["RANK"]) == 0
"""


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("topo.is_last", "rank"),
        ("writes()", "rank"),
        ("topo.stage == 0", "rank"),
        ("not self.topo.is_last", "rank"),
        ("topo.is_wide()", "other"),
        ("topo.is_new()", "other"),  # that it counts says more
        ("is_last", "other"),  # another name than the property's
        ("topo.seed > 9", "other"),
        ("stage == 'fit'", "other"),
    ],
)
def test_a_role_that_follows_from_the_rank_asks_for_it(test: str, expected: str) -> None:
    source = f"{TOPOLOGY}def main():\n    if {test}:\n        barrier()\n"
    line = source.count("\n")
    assert guard_around([(Frame("/home/ann/train.py", line, "main"), ast.parse(source))]) == expected


def test_a_name_that_is_set_otherwise_too_is_no_role() -> None:
    source = (
        f"{TOPOLOGY}class Trainer:\n    def fit(self):\n        self.stage = 'fit'\n        if self.stage == 'fit':\n"
    )
    source += "            barrier()\n"
    assert guard_around([(Frame("/home/ann/train.py", source.count("\n"), "fit"), ast.parse(source))]) == "other"
