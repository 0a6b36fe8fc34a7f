"""One group that its members know under several names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hangwatch.model import Certainty
from tests.dump_verdicts import blamed, verdict
from tests.dump_world import Call, JobDumps, Step, Sync

MEMBERS: tuple[int, ...] = (2, 3, 4, 5)
GROUPS = {"first": MEMBERS, "second": MEMBERS}


def _program(group: str) -> list[Step]:
    return [Call("all_reduce", 30, 64), Sync(), Call("all_reduce", 40, 8, group), Sync()]


def _programs(first: tuple[int, ...]) -> dict[int, list[Step]]:
    return {rank: _program("first" if rank in first else "second") for rank in MEMBERS} | {
        rank: [Call("all_reduce", 30, 64), Sync()] for rank in (0, 1)
    }


def test_the_rank_that_made_the_group_in_another_order_is_named(tmp_path: Path) -> None:
    job = JobDumps(_programs((3,)), GROUPS, made_by={"first": (3,), "second": (2, 4, 5)})
    found = verdict(job, tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("new-group-mismatch", Certainty.LIKELY, [3])
    assert "ranks 2 and 4-5 have it as group 2 (second) and rank 3 has it as group 1 (first)" in found.summary


def test_of_two_halves_neither_is_named(tmp_path: Path) -> None:
    job = JobDumps(_programs((2, 3)), GROUPS, made_by={"first": (2, 3), "second": (4, 5)})
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found)) == ("new-group-mismatch", [])


class Swapped(JobDumps):
    """Rank 3 has made the two groups in the other order: what is number 1 to the rest is what it calls the second."""

    def document(self, rank: int) -> dict[str, Any]:
        found = super().document(rank)
        if rank != 3:
            return found
        said = {"first": "second", "second": "first"}
        config = {
            name: group | {"desc": said.get(group["desc"], group["desc"])} for name, group in found["pg_config"].items()
        }
        entries = [
            entry | {"process_group": (entry["process_group"][0], said.get(entry["process_group"][1], "default_pg"))}
            for entry in found["entries"]
        ]
        return found | {"pg_config": config, "entries": entries}


def _pair(first: str, second: str) -> list[Step]:
    """A sum in the first group and a gather in the second."""
    return [Call("all_reduce", 40, 8, first), Sync(), Call("all_gather", 50, 8, second), Sync()]


def test_groups_of_the_same_ranks_that_are_described_otherwise_were_made_in_another_order(tmp_path: Path) -> None:
    programs = {rank: _pair("second", "first") if rank == 3 else _pair("first", "second") for rank in MEMBERS}
    found = verdict(Swapped(programs | {0: [], 1: []}, GROUPS), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("new-group-mismatch", Certainty.LIKELY, [3])
    assert "ranks 2 and 4-5: group 1 is 'first', group 2 is 'second'; rank 3: group 1 is 'second'" in found.summary


def test_two_groups_of_the_same_ranks_are_no_mismatch(tmp_path: Path) -> None:
    """All members know both groups, and call them in unlike order."""
    found = verdict(JobDumps(_programs((3,)), GROUPS), tmp_path)
    assert found.cause != "new-group-mismatch"


class OtherMembers(JobDumps):
    """Each rank makes the group of its column; rank 3 takes another list of ranks for its own."""

    taken: tuple[int, ...] = (2, 3)

    def document(self, rank: int) -> dict[str, Any]:
        found = super().document(rank)
        entries = [entry | {"process_group": (entry["process_group"][0], "dp")} for entry in found["entries"]]
        config = {name: group | {"desc": "dp"} for name, group in found["pg_config"].items()}
        for name, group in config.items():
            if rank == 3 and group["ranks"] == "[1, 3]":
                config[name] = group | {"ranks": str(list(self.taken))}
        return found | {"pg_config": config, "entries": entries}


def _columns() -> OtherMembers:
    programs: dict[int, list[Step]] = {
        rank: [Call("all_reduce", 40, 8, "even" if rank % 2 == 0 else "odd"), Sync()] for rank in range(4)
    }
    return OtherMembers(programs, {"even": (0, 2), "odd": (1, 3)}, broken={"odd": 1})


def test_a_group_of_other_members_under_one_name_is_told(tmp_path: Path) -> None:
    """Rank 2, which rank 3 takes for a member, is in another column, as that column's other rank has it too."""
    found = verdict(_columns(), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("new-group-mismatch", Certainty.LIKELY, [3])
    assert "rank 1 has it with ranks 1 and 3 and rank 3 has it with ranks 2-3" in found.summary


def test_of_two_lists_of_members_that_fit_the_other_groups_neither_is_named(tmp_path: Path) -> None:
    job = _columns()
    job.taken = (3, 5)
    found = verdict(job, tmp_path)
    assert (found.cause, blamed(found)) == ("new-group-mismatch", [])


class BeforeTheFirstCall(JobDumps):
    """Rank 4 leaves rank 7 out of a group that ranks 5-7 make with it; its set-up blocks all of them."""

    def document(self, rank: int) -> dict[str, Any]:
        found = super().document(rank)
        if rank == 4:
            found["pg_config"]["1"] = found["pg_config"]["1"] | {"ranks": "[4, 5, 6]"}
        return found


def test_awaited_ranks_that_have_one_group_with_different_members_are_in_its_set_up(tmp_path: Path) -> None:
    rounds: list[Step] = [Call("all_reduce", 40, 8), Sync()]
    programs = {rank: 3 * rounds if rank < 4 else 2 * rounds for rank in range(8)}
    found = verdict(BeforeTheFirstCall(programs, {"b": (4, 5, 6, 7)}), tmp_path)
    assert (found.cause, found.certainty, blamed(found)) == ("new-group-mismatch", Certainty.LIKELY, [4])
    assert "rank 4 has it with ranks 4-6 and ranks 5-7 have it with ranks 4-7" in found.summary


def test_ranks_that_have_one_group_alike_may_be_anywhere(tmp_path: Path) -> None:
    rounds: list[Step] = [Call("all_reduce", 40, 8), Sync()]
    programs = {rank: 3 * rounds if rank < 4 else 2 * rounds for rank in range(8)}
    assert verdict(JobDumps(programs, {"b": (4, 5, 6, 7)}), tmp_path).cause != "new-group-mismatch"
