"""The figures that hangwatch promises to hold, each measured in this run and set beside its budget."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hangwatch.commands.benchmark.gallery import STALL_AFTER
from hangwatch.commands.benchmark.results import Figure
from hangwatch.commands.trial import Trial
from hangwatch.gallery import CASES, Case, command
from hangwatch.model import Certainty, Incident

Part = Callable[[], list[Figure]]

SAMPLES = 5  # of what a process can be measured for only once
PROVABLE = ("uneven-steps", "rank-frozen", "skipped-gather", "lone-validation-barrier", "skipped-backward-nan")
RANKS = 4
LONGEST = 120.0  # seconds for one verdict
SMALL, LARGE, LARGEST = 256, 1024, 16384


def parts() -> tuple[Part, ...]:
    """What is measured, in this order."""
    kept = Path(tempfile.mkdtemp(prefix="hangwatch-bench-"))

    def time_to_a_proof() -> list[Figure]:
        return proofs(kept)

    def large_jobs() -> list[Figure]:
        try:
            return scale(kept)
        finally:
            shutil.rmtree(kept, ignore_errors=True)

    return attach, hooks, throughput, watchdog_at_rest, watchdog_polls, evidence, time_to_a_proof, large_jobs


def title(part: Part) -> str:
    """The name of a part, for people."""
    return str(getattr(part, "__name__", part)).replace("_", " ")


def guarded(part: Part) -> list[Figure]:
    """The figures of a part; what cannot be measured is named, and the others are measured all the same."""
    try:
        return part()
    except (OSError, ValueError, RuntimeError, AssertionError, subprocess.SubprocessError) as error:
        return [
            Figure(
                title(part), None, "", 0.0, note=f"could not be measured: {str(error) or type(error).__name__}"[:200]
            )
        ]


def attach() -> list[Figure]:
    """The best of several: what a busy machine adds is not ours."""
    with tempfile.TemporaryDirectory() as cache:
        found = [_python("-m", "hangwatch_agent.overhead.attach", cache=cache) for _ in range(SAMPLES + 1)][1:]
    cpu = statistics.median(each["cpu_ms"] for each in found)
    note = f"best of {SAMPLES} processes, bytecode compiled before; {cpu:.1f} ms of processor time (median)"
    return [
        Figure("import + attach", min(each["ms"] for each in found), "ms", 15.0, note=note),
        Figure("memory of import + attach", statistics.median(each["mib"] for each in found), "MiB", 3.0),
    ]


def hooks() -> list[Figure]:
    found = _python("-m", "hangwatch_agent.overhead.hooks")
    note = "loader, forward, backward and optimizer of a DDP step, with and without hooks in turns"
    return [Figure("all hooks of a step", found["hooks_us_per_step"], "us", 5.0, note=note)]


def throughput() -> list[Figure]:
    found = _python("-m", "hangwatch_agent.overhead.throughput")
    note = (
        f"median of {found['pairs']:.0f} pairs of rounds in turns, 2 ranks, step of {found['step_ms']:.1f} ms; "
        f"in processor time {found['cpu_ratio']:.3f}"
    )
    return [Figure("throughput attached / plain", found["ratio"], "", 0.99, at_least=True, note=note)]


def watchdog_at_rest() -> list[Figure]:
    from hangwatch.commands.benchmark import rest

    mebibytes, percent = rest.measure()
    return [
        Figure("watchdog, memory", mebibytes * 2**20 / 1e6, "MB", 40.0, note=f"{rest.RANKS} ranks at rest"),
        Figure("watchdog, processor", percent, "% of a core", 1.0, note=f"over {rest.OBSERVED:.0f} s"),
    ]


def watchdog_polls() -> list[Figure]:
    found = _python("-m", "hangwatch_agent.overhead.poll", "64", "128")
    note = "boards with full rings that go on by 5 steps and 20 calls between two polls; processor time"
    return [
        Figure("a poll, 64 ranks", found["64"] * 1e3, "ms", 70.0, note=note),
        Figure("a poll, 128 ranks / 64 ranks", found["128"] / found["64"], "", 2.2),
    ]


def evidence() -> list[Figure]:
    code = "import json; from hangwatch_agent.overhead import capture; print(json.dumps(capture.figures()))"
    seconds, workers = _python("-c", code)
    note = f"8 ranks, {workers} loader workers found; without native frames and the wait between samples"
    return [Figure("taking evidence", seconds, "s", 1.5, note=note)]


def proofs(keep: Path, rounds: int = 2) -> list[Figure]:
    """Provable hangs on four ranks with the culprit moved; the reports of the first kind are kept for `scale`."""
    chosen = [case for case in CASES if case.name in PROVABLE]
    times, others = [], []
    for number in range(rounds):
        for case in chosen:
            folder = keep if case.name == "uneven-steps" and number == 0 else None
            found = _verdict(case, (case.culprit or 0) + number, folder)
            if found is not None and found.verdict.hang == Certainty.PROVEN:
                times.append(found.detected_after_s)
            else:
                others.append(f"{case.name} {found.verdict.hang or found.status if found else 'not told'}")
    if not times:
        raise RuntimeError(f"nothing was proven: {', '.join(others)}")
    note = f"{len(times)} of {rounds * len(chosen)} runs of {', '.join(case.name for case in chosen)} on {RANKS} ranks"
    unproven = f"not proven: {', '.join(others)}" if others else ""
    return [
        Figure("proof after the last step, median", statistics.median(times), "s", 5.0, note=note),
        Figure("proof after the last step, worst", max(times), "s", 5.0, note=unproven),
    ]


def scale(kept: Path) -> list[Figure]:
    """Time is processor time: judging runs in one thread and waits for nothing."""
    incident = next(kept.glob("incident-*.json"), None)
    if incident is None:
        raise RuntimeError("no incident of the gallery to make a large one from")
    large = _judged(incident, LARGE, "distinct")
    small, largest = _judged(incident, LARGE, "shared"), _judged(incident, LARGEST, "shared")
    per_rank = (largest["seconds"] / LARGEST) / (small["seconds"] / LARGE)
    distinct = f"each rank's evidence of its own ({large['mib']:.0f} MiB); verdict {_right(large)}"
    a_rank = (large["mib"] - _judged(incident, SMALL, "distinct")["mib"]) / (LARGE - SMALL)
    captured = (large["mib"] + a_rank * (LARGEST - LARGE)) * 2**20 / 1e6
    shared = f"equal parts of evidence kept once; verdict {_right(largest)}"
    return [
        Figure("judging 1,024 ranks", large["seconds"], "s", 0.5, note=distinct),
        Figure("judging 16,384 ranks", largest["seconds"], "s", 10.0, note=shared),
        Figure(
            "memory for 16,384 ranks", largest["mib"] * 2**20 / 1e6, "MB", 1000.0, note="evidence included, as above"
        ),
        Figure(
            "the same, each rank's own evidence",
            captured,
            "MB",
            1000.0,
            note="from the growth between 256 and 1,024 ranks",
        ),
        Figure("time a rank, 16,384 / 1,024 ranks", per_rank, "", 2.0, note="1 is linear"),
    ]


def _right(judged: Any) -> str:
    return "right" if judged["right"] else f"WRONG ({judged['cause']})"


def _judged(incident: Path, ranks: int, how: str) -> Any:
    return _python("-m", "hangwatch.commands.benchmark.scale", str(incident), str(ranks), how)


def _verdict(case: Case, culprit: int, keep: Path | None) -> Incident | None:
    chosen = None if case.culprit is None else culprit % RANKS
    with tempfile.TemporaryDirectory(prefix="hangwatch-bench-") as name, (Path(name) / "output").open("wb") as output:
        words = command(case, ranks=RANKS, culprit=chosen)
        options = ("--stall-after", str(STALL_AFTER))
        with Trial(words, Path(name) / "reports", options, output.fileno()) as trial:
            found = trial.incident(LONGEST)
            for report in trial.reports() if keep is not None else ():
                shutil.copy(report, str(keep))
        return found


def _python(*words: str, cache: str | None = None) -> Any:
    """What a Python process prints as JSON. `cache` is a folder for its bytecode, which an installed package has."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if cache is not None:
        environment["PYTHONPYCACHEPREFIX"] = cache
    done = subprocess.run(
        [sys.executable, *words],
        env=environment,
        capture_output=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    return json.loads(done.stdout)
