"""One simulated job in words: the program, the truth, and what was said."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.judge import diagnose
from hangwatch.model import Judgement

from .score import outcome
from .world import Played


def tell(played: Played) -> str:
    """The job of a seed for a person who looks into a wrong verdict."""
    judgement = diagnose(played.snapshot)
    return "\n".join((*_program(played), *_truth(played), *_seen(played), *_verdict(played, judgement)))


def _program(played: Played) -> Iterator[str]:
    plan = played.plan
    yield f"seed {played.seed}: {plan.size} ranks on {len(set(plan.hosts))} hosts, {plan.backend}, style {plan.style}"
    shown = ("loader", "epochs", "batches", "cadence", "buckets", "log_every")
    yield "  " + ", ".join(f"{name} {getattr(plan, name)}" for name in shown)
    flags = ("buffers", "vote", "tensor", "pipeline", "item", "two_models", "validate", "save", "stop", "asynchronous")
    more = (*flags, "eager", "garbage", "slow_links")
    yield "  with " + (", ".join(name for name in more if getattr(plan, name)) or "nothing more")
    for fault in played.faults:
        yield f"  fault: {fault.kind} on ranks {sorted(fault.ranks)}{'' if fault.forever else ' (ends)'}"
    yield f"  camera: {played.camera}"


def _truth(played: Played) -> Iterator[str]:
    truth = played.truth
    yield f"truth: the job {'can go on' if truth.alive else 'has ended' if truth.finished else 'cannot go on'}"
    yield f"  in effect: {truth.kind}; right causes {list(truth.causes)}; guilty ranks {sorted(truth.guilty)}"


def _seen(played: Played) -> Iterator[str]:
    yield "evidence:"
    for entry in played.snapshot.ranks[:16]:
        state = entry.process.state if entry.process is not None else "?"
        cpu = entry.process.cpu_delta_s if entry.process is not None else None
        code = entry.process.exit_code if entry.process is not None else None
        phase = entry.reading.phase if entry.reading is not None else "?"
        step = entry.reading.progress if entry.reading is not None else None
        heads = " ".join(f"{h.name}:{h.completed}/{h.issued}" for h in entry.collectives.heads)
        where = f"{step.epoch}.{step.batch} step {step.step}" if step is not None else ""
        yield f"  rank {entry.rank}: {state} {code if code is not None else ''} cpu {cpu} {phase} {where} [{heads}]"
        for stack in entry.stacks:
            if stack.name != "hangwatch-ticker":
                yield f"      {stack.name}: " + " < ".join(f"{f.function}:{f.line}" for f in stack.frames[:6])
        for call in entry.reading.open_calls if entry.reading is not None else ():
            yield f"      open: {call.op} {call.seq} of {call.group} peer {call.peer} ({call.thread_name})"
        error = entry.reading.exception if entry.reading is not None else None
        if error is not None:
            yield f"      raised {error.type}: {error.message}"


def _verdict(played: Played, judgement: Judgement) -> Iterator[str]:
    verdict = judgement.verdict
    yield f"verdict: {judgement.status}, hang {verdict.hang}; {verdict.cause}, {verdict.certainty}"
    yield f"  {verdict.summary}"
    yield f"  blamed {[who.rank for who in verdict.culprits]}; {outcome(played, judgement)}"
    yield from (f"  because: {sentence}" for sentence in (*verdict.argument, *verdict.evidence))
