"""A rank that waits for a batch, and each of its loader workers: what the rules of the data ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from hangwatch import words
from hangwatch.facts.processes.child import CHILD_QUIET_IO, Child
from hangwatch.facts.processes.sleep import how_it_sleeps
from hangwatch.model import Culprit, Frame, LoaderFacts, OpenFile, ProcessEvidence, ProcessFacts
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.classify import activity
from hangwatch.stacks.frames import name_of, origin

_LOOP = "_worker_loop"  # of torch, and of packages that derive their loader from torch's


@dataclass(frozen=True)
class Worker(Child):
    """One loader worker: its evidence, the processes that it has started, and what follows from these."""

    index: int | None
    tools: tuple[Child, ...] = ()

    @property
    def awaited(self) -> Child | None:
        """The process for whose end it waits."""
        return next((each for each in self.tools if each.pid == self.facts.waits_for), None)

    @property
    def works(self) -> bool:
        """It works itself, or has a process do it."""
        return super().works or (self.awaited is not None and self.awaited.works)

    @property
    def task(self) -> str:
        """ "sample 17", "samples [16, 17]", "batch 4" of a stream; "" where it is not known."""
        sample = self.evidence.sample or ""
        if not sample or sample.startswith("batch"):
            return sample
        return f"samples {sample}" if sample.startswith("[") else f"sample {sample}"

    @property
    def name(self) -> str:
        return str(self.index) if self.index is not None else "?"

    # -------------------------------------------------------------- where it stands

    def begins(self, frame: Frame) -> bool:
        """Whether it is the worker loop of torch, or of a package with a loader of its own."""
        return name_of(frame.function) == _LOOP and origin(frame.file) in ("torch", "package")

    @property
    def idle(self) -> bool:
        """It waits for work: the call in the worker loop is a queue's get."""
        python = [frame for frame in self.inner if not frame.native]
        return bool(python) and name_of(python[-1].function) == "get" and python[-1].file.endswith("queues.py")

    # -------------------------------------------------------------- life

    @property
    def frozen(self) -> bool:
        return self.state in ("T", "t") or (self.state == "D" and not self.works)

    @property
    def delivered(self) -> bool:
        """It has put a batch into its queue before: the first one starts the queue's feeder thread."""
        return any(stack.name.startswith("QueueFeeder") for stack in self.evidence.stacks)

    @property
    def cannot_serve(self) -> bool:
        """It has passed descriptors on before, and the thread that does so has ended with an error."""
        return self.delivered and not any("_serve" in stack.name for stack in self.evidence.stacks)

    # -------------------------------------------------------------- in words

    @property
    def life(self) -> str:
        return f"a zombie (pid {self.pid}): {self.ended}" if self.state == "Z" else f"gone (pid {self.pid})"

    @property
    def ended(self) -> str:
        return words.ended(self.facts.exit_code)

    @property
    def how_frozen(self) -> str:
        if self.state == "t":
            return "is stopped by a debugger (state t)"
        if self.state == "T":
            return "is stopped (state T)"
        file = self.facts.blocked_on
        channel = f", kernel function {self.facts.wait_channel}" if self.facts.wait_channel else ""
        return f"sleeps uninterruptibly in the kernel (state D{channel})" + (f" on {_file(file)}" if file else "")

    @property
    def how_stuck(self) -> str:
        facts = self.facts
        if self.awaited is not None:
            return f"it waits for its {self.awaited.as_child}"
        if self.computes and facts.cpu_delta_s is not None:
            return f"it uses the processor ({facts.cpu_delta_s:.1f} s in the last second)"
        if (facts.io_delta_bytes or 0) > CHILD_QUIET_IO:
            return "it reads or writes"
        if facts.blocked_on is not None:
            return f"it waits on {_file(facts.blocked_on)}"
        if facts.private_wait:
            return "it waits for a lock"
        if "sleep" in (facts.system_call or ""):
            return how_it_sleeps(facts)
        return f"it waits in {facts.system_call}" if facts.system_call else "it does not come back"


def _file(file: OpenFile) -> str:
    return f"{file.path} ({file.filesystem})" if file.filesystem else file.path


@dataclass(frozen=True)
class Feeding:
    """One rank and the workers of the loader that it waits for."""

    view: RankView

    @cached_property
    def loader(self) -> LoaderFacts | None:
        """The loader whose batch it waits for: the one inside next(), else the one with workers that was used last."""
        loaders = [each for each in self.view.loaders if each.num_workers]
        inside = [each for each in loaders if each.inside_next]
        return max(inside or loaders, key=lambda each: (each.epoch, each.drawn), default=None)

    @property
    def steady(self) -> bool:
        """Two samples find it in one fetch: that it looks after its workers every 5 s in between is no work."""
        view = self.view
        return view.steady or (view.sampled_twice and not view.evidence.moved and self._fetched_before)

    @cached_property
    def _fetched_before(self) -> bool:
        now = self.view.now
        earlier = (activity(each) for each in self.view.evidence.earlier_stacks if each.main is now.main)
        return any(then.doing is Doing.LOADER is now.doing and then.where == now.where for then in earlier)

    @property
    def waits(self) -> bool:
        """Its main thread waits for a batch of its workers, or for their end."""
        return self.view.main.doing is Doing.LOADER and bool(self.view.evidence.workers)

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        """The workers of that loader; all that the rank has where their loader is not known."""
        pids = self.loader.worker_pids if self.loader is not None else ()
        own = [each for each in self.view.evidence.workers if each.facts.pid in pids]
        return tuple(Worker(each, self._index(each), self._tools(each)) for each in own or self.view.evidence.workers)

    def _tools(self, worker: ProcessEvidence) -> tuple[Child, ...]:
        return tuple(Child(each) for each in self.view.evidence.children if each.facts.parent == worker.facts.pid)

    def _index(self, each: ProcessEvidence) -> int | None:
        pids = self.loader.worker_pids if self.loader is not None else ()
        return pids.index(each.facts.pid) if each.facts.pid in pids else each.worker

    # -------------------------------------------------------------- which of them

    @property
    def dead(self) -> list[Worker]:
        """Workers that are gone although the loop still counts on them.

        One that ended with exit code 0 is at the end of its share of an IterableDataset. Where the loop counts on it,
        torch raises an error within 5 s, which is on record.
        """
        over = self.loader is not None and (self.loader.exhausted or self.loader.left)
        return [] if over else [worker for worker in self.workers if worker.dead and worker.facts.exit_code != 0]

    @property
    def frozen(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.frozen]

    @cached_property
    def busy(self) -> list[Worker]:
        """Workers that live and do not wait for work."""
        return [worker for worker in self.workers if not worker.dead and worker.stack is not None and not worker.idle]

    @property
    def suspects(self) -> list[Worker]:
        """Those of the busy ones that stand still; all of them where none does."""
        still = [worker for worker in self.busy if not worker.works and worker.steady]
        return still or self.busy

    @property
    def lost_batch(self) -> bool:
        """A batch is awaited, and every worker waits for work: it was lost on its way."""
        living = [worker for worker in self.workers if not worker.dead]
        return bool(living) and self.view.steady and all(worker.idle and worker.steady for worker in living)

    @property
    def in_trouble(self) -> bool:
        return bool(self.busy or self.dead)

    @property
    def gave_nothing(self) -> bool:
        """No batch has come of the loader yet: what its workers have sent was no batch, but their state, say."""
        return self.loader is not None and not self.loader.drawn and not any(self.loader.drawn_per_epoch)

    @property
    def inherited(self) -> bool:
        """Every worker was forked, has never delivered a batch, and waits for a lock of its own process."""
        return bool(self.busy) and all(
            worker.waits_for_lock
            and (not worker.delivered or self.gave_nothing)
            and worker.forked_from(self.view.evidence.process, self.loader)
            for worker in self.busy
        )

    @property
    def processes(self) -> Iterator[ProcessFacts]:
        if self.view.evidence.process is not None:
            yield self.view.evidence.process
        yield from (worker.facts for worker in self.workers)

    # -------------------------------------------------------------- in words

    def culprit(self, worker: Worker) -> Culprit:
        return Culprit(self.view.rank, worker.pid, self.view.evidence.host, process="loader-worker", where=worker.where)

    def evidence(self, worker: Worker) -> Iterator[str]:
        """What is known of one worker, as sentences."""
        sample = f", on {worker.task}" if worker.task else ""
        state = f"in state {worker.state} " if worker.frozen else ""
        yield f"worker {worker.name} of rank {self.view.rank} (pid {worker.pid}) is {state}at {worker.place}{sample}"
        if worker.facts.cpu_delta_s is not None and not worker.frozen:
            yield f"it used {worker.facts.cpu_delta_s:.2f} s of processor time between two samples"
        if worker.alone:
            yield worker.no_owner
        idle = sum(each.idle for each in self.workers)
        if idle:
            others_idle = words.plural(idle, "other worker")
            yield f"{others_idle} of rank {self.view.rank} {words.verb(idle, 'waits', 'wait')} for work"
