"""The thresholds of pace, each once: a value, its unit, and why it is not smaller or larger.

They are high on purpose. A healthy job with jitter must be silent: a rank that is blamed wrongly costs a person a day.
"""

from __future__ import annotations

WARM_UP_STEPS = 10  # steps that do not count: compilation, caches and workers that start make the first ones slow
WINDOW_S = 5.0  # seconds of a window at least: shorter ones are mostly jitter
LEAST_STEPS = 5  # steps of a window at least, of each rank: where steps take seconds, windows are longer
MOST_WINDOWS = 48  # windows that are kept: four minutes, or 240 steps where those take longer

PERIOD_STEPS = 50  # steps of a period at least: the mean of fewer moves with single slow steps (a checkpoint, a log)
PERIOD_S = 5.0  # seconds of a period at least

SLOWER = 1.5  # times the typical rank's time: nodes of one kind differ by some 10 %, loaders by more
LEAST_LAG_S = 0.020  # seconds a step: what the scheduler of a busy machine takes now and then is below
WAITING = 0.5  # share of the time spent waiting for data from which a job is called data-bound
WAITING_ASYNC = 0.8  # the same where work is queued on a GPU: the loop has time to spare
LEAST_WAIT_S = 0.010  # seconds a step: below, more workers would gain nothing that can be noticed

TREND_WINDOWS = 6  # windows at least before a trend is told: the first third is compared with the last
TREND_RATIO = 1.5  # by which a lag must have changed to be called growing or shrinking
TREND_S = 0.010  # seconds a step by which it must have changed, too

CONFIRMED_S = 10.0  # seconds that plans of several nodes must differ: each node tells its own about once a second,
# and while a model or an epoch is made, one node tells the new plan before another does

MOST_SHOWN = 32  # ranks and nodes that are told one by one, slowest first: the rest stands in the quantiles
