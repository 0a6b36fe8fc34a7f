"""A world that knows the truth: simulated training jobs, against which the diagnosis is held by the hundred thousand.

`play(seed)` makes a random program of a distributed training job, puts faults into it, runs it on simulated ranks,
process groups and devices until nothing can move at once, and gives the evidence that hangwatch's agent would have
taken, with the truth: whether the job can go on, which faults have taken effect, and which ranks are innocent.
`score(played)` holds the diagnosis against it. `hangwatch bench --world N` does it for N seeds.
"""

from __future__ import annotations

from .score import Outcome, Score, score
from .world import Played, play

__all__ = ["Outcome", "Played", "Score", "play", "score"]
