"""docs/overhead.md from what `hangwatch_agent.overhead.run` has measured."""

from __future__ import annotations

import statistics
from typing import Any

PAGE = """# What watching costs

Measured the way users run it: `torchrun` plain, and the same command behind `hangwatch run --`, in turns, each time as
new processes. The training is DDP on gloo with a `DistributedSampler`, one thread for each rank, and matrix
multiplications that fill up the step; it knows nothing of hangwatch. The first seconds of each run are not timed. A
pair gives plain over watched for the same number of steps: 1.0 is no cost. The table shows the median of the pairs;
every single run is in [overhead.json](overhead.json).

Measured on {date}: {system}, {cores} cores, Python {python}.
Median of all {pairs} pairs: **{clock:.3f}** by the clock, **{cpu:.3f}** in the processor time of the ranks.
The load of the machine was {quietest:.1f} to {busiest:.1f}: where that is more than its cores, other programs took
them, ratios by the clock scatter by tenths and say little, and processor time, which a busy neighbour slows too, is
good to some hundredths at best. Such a table is no proof that a goal is met or missed. Measure on a quiet machine:
`python -m hangwatch_agent.overhead.run`.

| alone | step | ranks | workers | clock | processor | without polling | added to a step | pairs |
|---|---|---|---|---|---|---|---|---|
{rows}

`alone` is the step of one rank that has the machine to itself, `step` what a plain step of this job took, with more
ranks than cores a multiple of it; `workers` are loader workers of each rank. `clock` is the ratio by the clock,
`processor` that of the ranks' processor time. `without polling` leaves out what gloo's own threads (`gloo_tcp_loop`)
spend, and `added to a step` is the difference of that for one rank and step; where `-` stands, polling was not told
apart and is in it.{note}

## Where it goes

- gloo's threads poll without a pause while the data of another rank is there and their own rank has not asked for it
  yet. So each moment by which one rank comes later than another is processor time too, where a core is free for it:
  of two ranks of which one sleeps for 1 ms before an `all_reduce`, the late one spends 0.9 ms on polling. Most of
  what the column `processor` shows above is that, and the training's own thread takes no longer. It grows where other
  programs take the cores, for the ranks come further apart then (6 runs of 300 steps each at a load of 20, medians):
  gloo's thread took 256 us of a step plain, 295 us below `hangwatch run` with HANGWATCH_ENABLED=0, 320 us watched with
  a ticker that never ticks, and 486 us with five ticks a second.
- The ticker thread of a rank wakes five times a second (`HANGWATCH_TICK`). Each of its looks holds Python's lock, for
  45 us of processor time in a loop and about 0.2 ms within a training; the training waits for that, and for longer
  where another program takes the core meanwhile. So a rank that moves is looked at once a second only, and the ticks
  between take 4 us in a loop. At a load of 20 to 27 (8 runs each, medians) gloo's thread took 261 us of a step plain,
  449 us with a ticker that looks each time and about 400 us now.
- The hooks of a step take 449 bytecodes in 10 calls of Python and one call into torch: about 4.2 us of processor time
  in a loop, the least of many rounds on a busy machine (loader 2.0, forward 1.2, backward 0.6, optimizer 0.4). Within a
  real step their code and data have left the processor's caches: there the same hooks take 10 to 20 us, and up to 40 us
  where other programs share the caches. About a tenth is the question to torch how many collectives the group has
  issued.
- The watchdog, a process beside the ranks, polls once a second (`HANGWATCH_POLL`): about 2 ms with two ranks. Where
  ranks leave no core to it, that is time the ranks do not get.
"""


PEER = """
## Beside a peer

The same measured with {name} {version} in the place of hangwatch (`{watcher}`), in the state in which it starts:

| alone | step | ranks | workers | clock | processor | without polling | added to a step | pairs |
|---|---|---|---|---|---|---|---|---|
{rows}
"""


def page(measured: dict[str, Any]) -> str:
    """The page for people. `peers`, where there are any, are documents of other watchers with `name` and `version`."""
    loads = [load for each in measured["results"] for load in each["load"]]
    figures = {"quietest": min(loads), "busiest": max(loads), **_medians(measured)}
    note = f"\n{measured['note']}" if "note" in measured else ""
    own = PAGE.format(**{**measured, **figures, "note": note}, rows=_rows(measured))
    return own + "".join(PEER.format(**peer, rows=_rows(peer)) for peer in measured.get("peers", ()))


def _medians(measured: dict[str, Any]) -> dict[str, float]:
    """Over the pairs of all setups: each weighs the same, however long its steps are."""
    pairs = [pair for each in measured["results"] for pair in zip(each["plain"], each["watched"], strict=True)]
    ratios = {
        name: statistics.median(plain[figure] / watched[figure] for plain, watched in pairs)
        for name, figure in (("clock", "wall_s"), ("cpu", "cpu_s"))
    }
    return {"pairs": len(pairs), **ratios}


def _rows(measured: dict[str, Any]) -> str:
    return "\n".join(_row(each) for each in measured["results"])


def _row(each: dict[str, Any]) -> str:
    setup = each["setup"]
    workers = str(setup["workers"]) if setup["workers"] else "none"
    work = f"{each['work_ratio']:.3f}" if "work_ratio" in each else "-"
    return (
        f"| {setup['step_ms']:g} ms | {each['step_ms']:.1f} ms | {setup['ranks']} | {workers} "
        f"| {each['clock_ratio']:.3f} | {each['cpu_ratio']:.3f} | {work} "
        f"| {each['added_us']:.0f} us | {len(each['plain'])} |"
    )
