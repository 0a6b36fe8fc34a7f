"""How long a rank may stand still before it counts as stalled without proof.

Patience learns: a job whose slowest recent step took 40 s is given 240 s. Stages in which long silences are normal
(the first step compiles and warms caches, an evaluation runs for minutes) are given more from the start, and every
incident that ended by itself doubles what follows.
"""

from __future__ import annotations

from hangwatch.records import Phase, Reading
from hangwatch.settings import Settings

SLOW_STEPS = 6.0  # times the slowest recent step
LONG_STAGES = 5.0  # times stall_after, for first step and evaluation
MOST_GROWTH = 8.0

_STARTING = (Phase.START, Phase.INIT, Phase.GROUP)
_LEAVING = (Phase.MAIN_DONE, Phase.ATEXIT, Phase.FINALIZING)


def patience(reading: Reading, settings: Settings, growth: float = 1.0) -> float:
    """Seconds of stillness after which the rank of `reading` counts as stalled."""
    if reading.phase in _STARTING:
        return settings.start_after * growth
    if reading.phase in _LEAVING:
        return settings.linger_after * growth
    base = settings.stall_after * (LONG_STAGES if _long_stage(reading) else 1.0)
    return max(base, SLOW_STEPS * reading.times.slowest_recent_s) * growth


def _long_stage(reading: Reading) -> bool:
    first_step = reading.progress.step <= 0 and reading.progress.optimizer_steps <= 1
    raw_collectives = reading.progress.step < 0 and reading.progress.calls > 0
    first_batch = reading.phase == Phase.DATA and reading.progress.draws == 0
    return reading.phase == Phase.EVAL or first_batch or (first_step and not raw_collectives)
