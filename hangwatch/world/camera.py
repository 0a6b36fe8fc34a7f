"""How the evidence of a simulated job is taken."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Camera:
    """How the evidence is taken: how late, and with which of the optional sources."""

    still_s: float = 5.0
    patience_s: float = 120.0
    recorder: bool = True  # the flight recorder's answers
    native: bool = True  # native frames, where a thread spins
    way: int = 0  # in which call of the driver a line of the user's waits for its device, one of `stacks.WAITS`
    calls_kept: int = 2048
    steps_kept: int = 512
    watched: bool = False  # a watch has compared the ranks' steps while the job ran
    skips: bool = False  # the source shows a way past the calls of the loop
    sampled_twice: bool = True
    source: bool = True  # the user's source could be read
    no_steps: bool = False  # nothing counts steps
    no_loaders: bool = False  # loaders of a kind that is not hooked
    silent: tuple[int, ...] = ()  # ranks of which nothing is known
    no_answer: tuple[int, ...] = ()  # ranks whose recorder did not answer
    no_stacks: tuple[int, ...] = ()
    stale: tuple[int, ...] = ()  # ranks whose ticker has stopped
    no_board: tuple[int, ...] = ()  # ranks that are known by their process alone
    moved: tuple[int, ...] = ()  # ranks whose counters moved between the two samples
