"""What `hangwatch run -- torchrun ...` costs a job, as users start it: `python -m hangwatch_agent.overhead.run`.

The same training runs plain and under watch in turns, many times for a short while, each time as processes of its own:
what else the machine does hits both alike. A pair gives ratios of the same steps, plain over watched: by the clock, in
the processor time of the ranks, and in that without what gloo's threads spend on polling. Prints JSON with every single
run; `--write FOLDER` keeps it as overhead.json, with a page for people beside it, overhead.md. Another watcher is
measured by its command after `--`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hangwatch_agent.overhead.page import page

TRAINING = Path(__file__).with_name("training.py")
PAIRS = 7
ROUND_S = 3.0  # of timed steps in a run
MOST_S = 180.0


@dataclass(frozen=True)
class Setup:
    """One kind of job: the length of its steps as calibrated with one rank, its ranks, and loader workers of each."""

    step_ms: float
    ranks: int
    workers: int = 0


SETUPS = (
    Setup(1, 2), Setup(5, 2), Setup(50, 2), Setup(1, 2, 2), Setup(5, 2, 2), Setup(50, 2, 2),
    Setup(5, 1), Setup(5, 4), Setup(5, 8),
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Seconds that the timed steps of one run took: by the clock (slowest rank), and processor time of all ranks.

    `polled_s` is the part of the processor time in which gloo's threads polled for a rank that came later.
    """

    wall_s: float
    cpu_s: float
    polled_s: float = 0.0

    @property
    def work_s(self) -> float:
        """Processor time without that polling."""
        return self.cpu_s - self.polled_s


@dataclass
class Result:
    """All pairs of one setup."""

    setup: Setup
    multiplications: int
    steps: int
    load: list[float] = field(default_factory=list)  # of the machine over the last minute, after each pair
    plain: list[Run] = field(default_factory=list)
    watched: list[Run] = field(default_factory=list)

    def ratios(self, figure: str) -> list[float]:
        """Plain over watched, pair by pair, sorted: 1.0 is no cost, 0.99 is a hundredth."""
        pairs = zip(self.plain, self.watched, strict=True)
        return sorted(float(getattr(plain, figure)) / float(getattr(watched, figure)) for plain, watched in pairs)

    def added_us(self) -> float:
        """Processor time (polling left out) that watching adds to a step of one rank, in microseconds; the median."""
        added = (watched.work_s - plain.work_s for plain, watched in zip(self.plain, self.watched, strict=True))
        return statistics.median(added) / self.steps / self.setup.ranks * 1e6

    @property
    def step_ms(self) -> float:
        """What a plain step really took."""
        return statistics.median(run.wall_s for run in self.plain) / self.steps * 1e3


def measure(setup: Setup, pairs: int, watcher: Sequence[str], round_s: float = ROUND_S) -> Result:
    """Interleaved runs of one setup."""
    multiplications = int(_torchrun(setup, 1, 0, (), ranks=1)[0]["multiplications"])
    probe = _run(setup, max(10, int(0.5e3 / setup.step_ms)), multiplications, ())
    steps = max(10, int(round_s / (probe.wall_s / max(10, int(0.5e3 / setup.step_ms)))))
    result = Result(setup, multiplications, steps)
    for number in range(pairs):
        for watched in (bool(number % 2), not number % 2):
            run = _run(setup, steps, multiplications, watcher if watched else ())
            (result.watched if watched else result.plain).append(run)
        result.load.append(os.getloadavg()[0])
        print(f"{setup} pair {number}: {result.plain[-1]} {result.watched[-1]}", file=sys.stderr)
    return result


def _run(setup: Setup, steps: int, multiplications: int, watcher: Sequence[str]) -> Run:
    ranks = _torchrun(setup, steps, multiplications, watcher, ranks=setup.ranks)
    cpu_s, polled_s = (sum(each[name] for each in ranks) for name in ("cpu_s", "polled_s"))
    return Run(max(each["wall_s"] for each in ranks), cpu_s, polled_s)


def _torchrun(
    setup: Setup, steps: int, multiplications: int, watcher: Sequence[str], *, ranks: int
) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="hangwatch-overhead-") as folder:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        script = [str(TRAINING), *map(str, (setup.step_ms, steps, multiplications, setup.workers, folder))]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HANGWATCH_REPORT_DIR": folder}
        done = subprocess.run(
            [*watcher, *launcher, *script], env=environment, capture_output=True, text=True, timeout=MOST_S
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        return [json.loads(Path(folder, f"rank-{rank}.json").read_text()) for rank in range(ranks)]


def watch_command() -> list[str]:
    """`hangwatch run --` of this very installation."""
    return [sys.executable, "-m", "hangwatch", "run", "--"]


def document(results: Iterable[Result], watcher: Sequence[str]) -> dict[str, Any]:
    """Everything that was measured, and on what."""
    return {
        "schema": "hangwatch.overhead/1",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "watcher": " ".join(Path(word).name for word in watcher),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "results": [
            {
                **asdict(each),
                "step_ms": each.step_ms,
                "clock_ratio": statistics.median(each.ratios("wall_s")),
                "cpu_ratio": statistics.median(each.ratios("cpu_s")),
                "work_ratio": statistics.median(each.ratios("work_s")),
                "added_us": each.added_us(),
            }
            for each in results
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="hangwatch_agent.overhead.run", description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--round-s", type=float, default=ROUND_S)
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    parser.add_argument("--setup", action="append", metavar="STEP_MS,RANKS,WORKERS", help="instead of all setups")
    arguments, watcher = parser.parse_known_args()
    chosen = [Setup(float(ms), int(ranks), int(workers)) for ms, ranks, workers in _split(arguments.setup or ())]
    watcher = watcher[1:] if watcher[:1] == ["--"] else watcher
    watcher = watcher or watch_command()
    found: list[Result] = []
    for each in chosen or SETUPS:
        found.append(measure(each, arguments.pairs, watcher, arguments.round_s))
        if arguments.write is not None:  # each at once: a run of all setups takes long
            keep(arguments.write, document(found, watcher))
    json.dump(document(found, watcher), sys.stdout, indent=1)
    print()


def keep(folder: Path, measured: dict[str, Any]) -> None:
    """Write the raw numbers and the page."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "overhead.json").write_text(json.dumps(measured, indent=1) + "\n")
    (folder / "overhead.md").write_text(page(measured))


def _split(texts: Iterable[str]) -> Iterable[list[str]]:
    return (text.split(",") for text in texts)


if __name__ == "__main__":
    main()
