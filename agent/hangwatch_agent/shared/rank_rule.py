"""What this process is in its job: a rank, a helper of a rank, or something that has nothing to do with training."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from hangwatch.launchers import TORCH_MODULES, TORCH_PROGRAMS, number

MARK = "HANGWATCH_RANK_PID"  # set in a rank: a process that inherits it with the same RANK is the rank's helper
RESTARTS = "TORCHELASTIC_RESTART_COUNT"


def looks_like_rank(environment: Mapping[str, str], command: Sequence[str], pid: int) -> bool:
    """Whether a process that has imported torch is a rank by its environment alone.

    Loader workers, compile workers and other children inherit RANK from their rank, and the mark with it; a launcher's
    RANK may mean something else. A process that this denies is a rank all the same if it calls init_process_group.
    """
    return not is_launcher(command) and own_rank(environment, pid) is not None


def own_rank(environment: Mapping[str, str], pid: int) -> int | None:
    """The RANK that the process `pid` was given; None where it has none, or has inherited it from a rank."""
    rank = number(environment, "RANK")
    marked_pid, _, marked_rank = environment.get(MARK, "").partition(":")
    inherited = marked_pid and marked_pid != str(pid) and marked_rank == str(rank)
    return None if inherited else rank


def generation(environment: Mapping[str, str]) -> int:
    """How often a restarting launcher such as torchrun has started its ranks anew."""
    return number(environment, RESTARTS) or 0


def mark() -> None:
    """This process is a rank: whom it starts is not, unless it is given another RANK."""
    os.environ[MARK] = f"{os.getpid()}:{number(os.environ, 'RANK')}"


def unmark() -> None:
    if os.environ.get(MARK, "").partition(":")[0] == str(os.getpid()):
        del os.environ[MARK]


def is_launcher(command: Sequence[str]) -> bool:
    """Whether a command line is a launcher's own: `torchrun ...`, `python -m torch.distributed.run ...`."""
    words = command[:4]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "-m":
            return following.startswith(TORCH_MODULES)
        if os.path.basename(word) in TORCH_PROGRAMS:  # noqa: PTH119
            return True
    return False


def command() -> Sequence[str]:
    return getattr(sys, "orig_argv", sys.argv)
