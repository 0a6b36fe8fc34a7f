"""What a simulated rank does by itself: batches, phases, steps, slow acts, errors and ends.

Each function carries out one act, and says whether the thread goes on to its next one.
"""

from __future__ import annotations

from hangwatch.model import Phase, StepEntry

from .acts import Destroy, Die, Draw, End, Enter, Forward, LoopEnd, Mark, Optimizer, Raise, Slow, Start, Stop
from .calls import Thread
from .failures import Failures
from .ranks import LoaderState, Rank


def draw(machine: Failures, rank: Rank, thread: Thread, act: Draw) -> bool:
    loader = rank.loaders.get(act.loader)
    if loader is None:
        loader = rank.loaders[act.loader] = LoaderState(act.length, training=act.training, workers=act.workers)
    if act.epoch != loader.epoch:
        if loader.epoch >= 0 and len(loader.counts) <= loader.epoch:
            _close(loader)
        loader.epoch, loader.drawn, loader.exhausted, loader.left = act.epoch, 0, False, False
    loader.length, loader.where = act.length, act
    loader.drawn += 1
    rank.draws += 1
    rank.moved_at = machine.clock
    rank.phase = Phase.STEP
    if act.training:
        rank.epoch, rank.batch = act.epoch, act.batch
        _begin_step(machine, rank, act.epoch, act.batch, act.loader)
    return True


def _close(loader: LoaderState) -> None:
    loader.counts.append(loader.drawn)
    loader.ends.append(loader.exhausted)
    loader.lengths.append(loader.length)


def _begin_step(
    machine: Failures, rank: Rank, epoch: int | None, batch: int | None, loader: int | None, first: int = 0
) -> None:
    step = rank.steps[-1].step + 1 if rank.steps else first
    rank.steps.append(StepEntry(step, epoch, batch, loader, machine.clock, dict(rank.issued)))


def loop_end(machine: Failures, rank: Rank, thread: Thread, act: LoopEnd) -> bool:
    loader = rank.loaders.get(act.loader)
    if loader is None:
        return True
    loader.exhausted, loader.left = act.exhausted, act.left
    if act.exhausted or act.left:
        _close(loader)
        rank.phase = Phase.BETWEEN
    return True


def forward(machine: Failures, rank: Rank, thread: Thread, act: Forward) -> bool:
    rank.forwards += 1
    rank.phase = Phase.FORWARD if act.grad else Phase.EVAL
    rank.moved_at = machine.clock
    if act.step and act.grad:
        _begin_step(machine, rank, None, None, None)
    return True


def optimizer(machine: Failures, rank: Rank, thread: Thread, act: Optimizer) -> bool:
    rank.optimizer_steps += 1
    rank.phase = Phase.OPTIMIZER
    rank.moved_at = machine.clock
    if act.step:
        _begin_step(machine, rank, None, None, None, first=1)  # it has ended step 0, which no act began
    return True


def enter(machine: Failures, rank: Rank, thread: Thread, act: Enter) -> bool:
    rank.phase = act.phase
    return True


def slow(machine: Failures, rank: Rank, thread: Thread, act: Slow) -> bool:
    thread.slow = act
    if act.fault is not None:
        machine.fired.add(act.fault)
    if act.kind == "frozen":
        rank.state = "D"
    return False


def mark(machine: Failures, rank: Rank, thread: Thread, act: Mark) -> bool:
    machine.fired.add(act.fault)
    return True


def start(machine: Failures, rank: Rank, thread: Thread, act: Start) -> bool:
    other = rank.threads[act.thread]
    other.running = True
    machine.ready.append(other)
    return True


def raises(machine: Failures, rank: Rank, thread: Thread, act: Raise) -> bool:
    machine.fail(thread, act.type, act.message, act.site, lingers=act.lingers)
    return False


def die(machine: Failures, rank: Rank, thread: Thread, act: Die) -> bool:
    machine.kill(rank, act.code)
    return False


def stop(machine: Failures, rank: Rank, thread: Thread, act: Stop) -> bool:
    rank.state = "T"
    return False


def destroy(machine: Failures, rank: Rank, thread: Thread, act: Destroy) -> bool:
    rank.phase, rank.destroyed = Phase.DESTROYED, True
    machine.first_closed = rank.number if machine.first_closed is None else machine.first_closed
    for other in machine.ranks:
        if other.living and other is not rank:
            machine.lose(other, rank)
    return True


def end(machine: Failures, rank: Rank, thread: Thread, act: End) -> bool:
    rank.phase = Phase.MAIN_DONE
    thread.running = False
    machine.ended(rank, thread)
    return False
