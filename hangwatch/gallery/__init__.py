"""One plain training script for every cause: the demo, the tests and the benchmark run the same ones.

The scripts know nothing of hangwatch. Each has a look-alike (`--healthy`) that finishes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hangwatch.ports import free_port

from .cases import CASES, Case

__all__ = ["CASES", "Case", "cases", "command", "environment"]

HERE = Path(__file__).resolve().parent


def cases(cause: str) -> tuple[Case, ...]:
    """All cases of one cause of the catalogue, by its id."""
    return tuple(case for case in CASES if case.cause == cause)


def environment(case: Case, folder: Path) -> dict[str, str]:
    """hangwatch's own settings that a case needs: a rank with a /dev/shm of its own would not find its board there."""
    return {"HANGWATCH_RUN_DIR": str(folder)} if case.cause == "shared-memory-exhausted" else {}


def command(
    case: Case,
    *,
    ranks: int | None = None,
    culprit: int | None = None,
    healthy: bool = False,
    port: int | None = None,
) -> list[str]:
    """The argument vector that runs a case, without `hangwatch run --` in front.

    Args:
        ranks: World size; the case's own if None.
        culprit: Which rank to make hang; the case's own if None, or the last one of fewer ranks.
        healthy: Run the look-alike instead.
        port: TCP port for the rendezvous; a free one if None. torchrun alone finds its own.

    Raises:
        ValueError: The case has no look-alike, no rank to choose, or needs more ranks.
    """
    ranks = case.ranks if ranks is None else ranks
    if ranks < case.min_ranks:
        raise ValueError(f"{case.name} needs at least {case.min_ranks} ranks, not {ranks}")
    if culprit is not None and (case.culprit is None or culprit in case.immune or not 0 <= culprit < ranks):
        raise ValueError(f"{case.name} cannot have rank {culprit} of {ranks} at fault")
    if healthy and not case.healthy_args:
        raise ValueError(f"{case.name} has no healthy look-alike")
    if culprit is None and case.culprit is not None:
        culprit = min(case.culprit, ranks - 1)
    words = {
        "ranks": ranks,
        "other": ranks - 2 if culprit == ranks - 1 else ranks - 1,
        "port": port or free_port(),
        "other_port": free_port(),
        "culprit": 0 if culprit is None else culprit,
    }
    script = [str(HERE / case.script), *(case.healthy_args if healthy else case.args)]
    if culprit is not None:
        script += ["--culprit", str(culprit)]
    if case.launcher == "spawn":
        script += ["--ranks", str(ranks), "--port", str(words["port"])]
    return [sys.executable, *_launcher(case, words, healthy), *(word.format(**words) for word in script)]


def _launcher(case: Case, words: dict[str, int], healthy: bool) -> list[str]:
    """The words between the interpreter and the script."""
    launch = case.launch if case.healthy_launch is None or not healthy else case.healthy_launch
    extra = [word.format(**words) for word in launch]
    if case.launcher == "torchrun":
        ranks = f"--nproc-per-node={words['ranks']}"
        return ["-m", "torch.distributed.run", *(extra or ["--standalone"]), ranks]
    if case.launcher == "plain":
        return [str(HERE / "launch_plain.py"), f"--ranks={words['ranks']}", f"--port={words['port']}", *extra]
    return []
