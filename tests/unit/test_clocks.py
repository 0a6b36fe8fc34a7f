"""Durations are monotonic: where the time of day is asked for, this file says why."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIME_OF_DAY = re.compile(r"\btime\.time(_ns)?\b|\bdatetime\.(now|utcnow|today)\b|\bclocks\.time_ns\b")

# Where a time of day belongs: what is compared with comes from another clock of that kind.
ALLOWED = {
    "agent/hangwatch_agent/shared/steady_clock.py": "the anchor, once for each process",
    "agent/hangwatch_agent/board/sweep.py": "the age of a folder: file systems keep the time of day",
    "agent/hangwatch_agent/board/reader.py": "when a board without an anchor was read",
    "agent/hangwatch_agent/capture/rank/collectives.py": "compared with the time of a file, and bounded",
    "agent/hangwatch_agent/dashboard_client/spool.py": "the age of a file, in days",
    "agent/hangwatch_agent/capture/proc/locks.py": "the age of a lock file",
    "agent/hangwatch_agent/capture/proc/polled_files.py": "the age of a file for which a loop looks",
    "agent/hangwatch_agent/capture/options.py": "what `locks` takes the age of a lock file with",
    "agent/hangwatch_agent/dashboard_client/connection.py": "the difference of this clock and the dashboard's is shown",
    "agent/hangwatch_agent/doctor/mesh.py": "the difference of the nodes' clocks is what it measures",
    "agent/hangwatch_agent/doctor/rank.py": "an end that all nodes of a check agree on; clocks of nodes are compared",
    "hangwatch/doctor/__init__.py": "the date of a report",
    "hangwatch/doctor/launch.py": "the same end, as it is told to the nodes",
    "agent/hangwatch_agent/overhead/capture.py": "a made-up reading",
    "hangwatch/commands/benchmark/gallery.py": "compared with the times in reports",
    "hangwatch/commands/benchmark/peers.py": "the moment at which several processes begin together",
    "hangwatch/commands/trial.py": "compared with the times of files",
    "hangwatch/gallery/standin/communicator.py": "as NCCL's recorder dates its entries",
    "hangwatch/gallery/exit_non_daemon_thread.py": "what a user's program writes into a file",
}


def test_the_time_of_day_is_asked_for_only_where_it_belongs() -> None:
    sources = [path for folder in ("agent", "hangwatch") for path in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 200
    code = {str(path.relative_to(ROOT)): path.read_text().replace("steady_clock.time", "") for path in sources}
    assert {name for name, text in code.items() if TIME_OF_DAY.search(text)} == set(ALLOWED)
