"""The thread that trains: the main one, or another where the main thread is a package's that hosts the program."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Frame, Phase, RankEvidence, ThreadStack
from hangwatch.ranks.view import RankView
from tests.unit.job import IN_STORE, gone, rank
from tests.unit.rules.step.worlds import changed, world
from tests.unit.simulator import SCRIPT, STDLIB, TORCH, Call, Draw, LoopEnd

ACTOR = "/venv/lib/python3.12/site-packages/actors/worker.py"
SERVING = (Frame(ACTOR, 1069, "main_loop"), Frame(ACTOR, 323, "<module>"))
STARTED = (Frame(ACTOR, 37, "_run"), Frame(f"{STDLIB}/threading.py", 982, "run"))
IN_CODE = (Frame(SCRIPT, 40, "push"), Frame(SCRIPT, 99, "loop"), *STARTED)
IN_BACKWARD = (Frame(f"{TORCH}/autograd/graph.py", 979, "_engine_run_backward"), Frame(SCRIPT, 14, "loop"), *STARTED)
OTHER = ThreadStack(9, "gc", (Frame(f"{STDLIB}/threading.py", 327, "wait"), Frame(ACTOR, 29, "run")))


def hosted(*own: tuple[Frame, ...], main: tuple[Frame, ...] = SERVING, phase: Phase = Phase.STEP) -> RankView:
    threads = (OTHER, *(ThreadStack(10 + n, f"trainer-{n}", frames) for n, frames in enumerate(own)))
    return RankView(0, rank(0, main, threads=threads, phase=phase), sampled_twice=True)


@pytest.mark.parametrize("frames", [IN_CODE, IN_BACKWARD], ids=["in its code", "in backward"])
def test_a_thread_that_an_actor_has_started_trains(frames: tuple[Frame, ...]) -> None:
    assert hosted(frames).now.thread == "trainer-0"


@pytest.mark.parametrize(
    "main",
    [
        (Frame(SCRIPT, 40, "main"), Frame(SCRIPT, 99, "<module>")),
        (Frame(f"{TORCH}/nn/modules/linear.py", 125, "forward"), *SERVING),
        (Frame(f"{STDLIB}/runpy.py", 88, "_run_code"),),
    ],
    ids=["the user's code", "a package that computes", "no package"],
)
def test_a_main_thread_that_runs_the_training_stays_it(main: tuple[Frame, ...]) -> None:
    assert hosted(IN_CODE, main=main).now.main


def test_of_several_threads_with_the_users_code_none_is_chosen_and_at_the_end_the_main_one() -> None:
    assert hosted(IN_CODE, IN_CODE).now.main
    assert hosted(IN_CODE, phase=Phase.DESTROYED).now.main


def test_the_thread_in_a_collective_is_chosen_of_several_with_the_users_code() -> None:
    assert hosted(IN_CODE, IN_BACKWARD).now.thread == "trainer-1"


def test_of_a_dead_rank_the_one_thread_that_left_a_trace_trained() -> None:
    thread = ThreadStack(10, "trainer", IN_BACKWARD)
    ended = replace(gone(0, -6, Phase.STEP), stacks=(thread,))
    assert RankView(0, ended, sampled_twice=False).now.thread == "trainer"
    assert RankView(0, replace(rank(0), stacks=(thread,)), sampled_twice=True).now.thread == ""  # no stack of its main


def test_beside_an_event_loop_without_a_task_to_run_the_thread_in_a_collective_trains() -> None:
    loop = (
        Frame(f"{STDLIB}/selectors.py", 468, "select"),
        Frame(f"{STDLIB}/asyncio/base_events.py", 1884, "_run_once"),
    )
    serves = (*loop, Frame(SCRIPT, 61, "<module>"))
    assert hosted(IN_BACKWARD, main=serves).now.thread == "trainer-0"
    assert hosted(main=serves).now.main


def _below(entry: RankEvidence) -> RankEvidence:
    """The whole program of a rank runs in a thread that an actor has started."""
    own = [replace(stack, main=False, name="trainer", thread_id=10) for stack in entry.stacks]
    own = [replace(stack, frames=(*stack.frames, *STARTED)) for stack in own]
    stacks = (ThreadStack(1, "MainThread", SERVING, main=True), OTHER, *own)
    return replace(entry, stacks=stacks, earlier_stacks=stacks)


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_rank_without_data_is_named_where_an_actor_hosts_the_training(culprit: int) -> None:
    def program(batches: int) -> list[object]:
        drawn = [each for batch in range(batches) for each in (Draw(0, batch), Call(via="gradients", line=14))]
        return [*drawn, LoopEnd(), Call("barrier", line=88)]

    snapshot = world(*(program(15 if rank == culprit else 20) for rank in range(3)))  # type: ignore[arg-type]
    for number in range(3):
        snapshot = changed(snapshot, number, _below)
    verdict = diagnose(snapshot).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("uneven-steps", [culprit])
    assert "worker.py" not in verdict.summary


@pytest.mark.parametrize(("received", "works"), [(4096, True), (0, False), (None, False)])
def test_a_rank_works_while_data_comes_over_the_connection_that_it_waits_on(received: int | None, works: bool) -> None:
    """A slow download takes no processor time, and `recv` is not among the bytes of /proc/PID/io."""
    facts = {"system_call": "recvfrom", "received_delta_bytes": received}
    view = RankView(0, rank(0, (Frame(SCRIPT, 8, "weights"),), facts=facts), sampled_twice=True)
    assert view.works is works


def test_what_comes_while_it_waits_for_other_ranks_is_no_work() -> None:
    """The answers of the job's store."""
    view = RankView(0, rank(0, IN_STORE, facts={"received_delta_bytes": 64}), sampled_twice=True)
    assert not view.works


@pytest.mark.parametrize("hosts", [True, False])
def test_the_state_of_a_main_thread_that_only_hosts_the_training_is_no_work(hosts: bool) -> None:
    """A package's event loop beside it runs now and then, whatever the training waits for."""
    own = (ThreadStack(10, "trainer", IN_BACKWARD),)
    main, threads = (SERVING, own) if hosts else (IN_BACKWARD, ())
    facts = {"state": "R", "cpu_delta_s": 0.01}
    view = RankView(0, rank(0, main, threads=threads, facts=facts), sampled_twice=True)
    assert (view.works, view.idle) == (not hosts, hosts)


@pytest.mark.parametrize(
    ("phase", "command", "well"),
    [
        (Phase.DESTROYED, "python /venv/lib/ray/_private/workers/default_worker.py --node-ip-address=::1", True),
        (Phase.STEP, "python /venv/lib/ray/_private/workers/default_worker.py --node-ip-address=::1", False),
        (Phase.DESTROYED, "python train.py", False),
    ],
)
def test_after_its_end_a_worker_is_ended_by_ray_with_the_code_of_an_error(
    phase: Phase, command: str, well: bool
) -> None:
    down = gone(0, 1, phase)
    assert down.reading is not None
    identity = replace(down.reading.identity, command=command)
    entry = replace(down, reading=replace(down.reading, identity=identity))
    assert RankView(0, entry, sampled_twice=True).finished is well
