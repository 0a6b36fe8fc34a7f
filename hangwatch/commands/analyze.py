"""`hangwatch analyze FILES...`: judge a hang afterwards, from the files that are left of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hangwatch.commands.evidence_files import Pile
    from hangwatch.records import Incident, Snapshot

HELP = "judge a hang from files: reports of several nodes, boards of dead ranks, flight-recorder dumps"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="files, or folders with such files")
    parser.add_argument("--json", metavar="OUT", help="write the merged report as JSON; - is standard output")
    parser.add_argument("--html", metavar="OUT", help="write the merged report as one HTML file; - is standard output")
    parser.add_argument(
        "--trust-pickle", action="store_true", help="read flight-recorder dumps that are pickles, of plain values only"
    )


def run(arguments: argparse.Namespace) -> int:
    from hangwatch.commands import evidence_files
    from hangwatch.report import files, words

    pile = evidence_files.sort_out(map(Path, arguments.files), trust_pickle=arguments.trust_pickle)
    snapshots = evidence_files.snapshots(pile)
    for problem in (*pile.problems, *filter(None, map(evidence_files.nowhere, snapshots))):
        print(f"hangwatch: {words.clean(problem)}", file=sys.stderr)
    if not snapshots:
        raise files.ReportError("none of these files can be used; wanted: incident-*.json, rank-*.board, dumps")
    if len(snapshots) > 1 and (arguments.json or arguments.html):
        raise files.ReportError(f"these files are of {len(snapshots)} jobs; give those of one job to write one report")
    for snapshot in snapshots:
        _tell(_judged(snapshot, pile), evidence_files.kinds(pile), arguments)
    return 0


def _judged(snapshot: Snapshot, pile: Pile) -> Incident:
    """The incident as the first report tells of it, with the verdict of all evidence together."""
    from hangwatch.diagnosis import diagnose
    from hangwatch.report.incident import incident, new_id

    earlier = [known for _, known in pile.incidents if known.job.id == snapshot.job.id]
    first = min(earlier, key=lambda known: known.opened_at, default=None)
    return incident(
        diagnose(snapshot),
        snapshot,
        id=first.id if first else new_id(),
        opened_at=first.opened_at if first else snapshot.taken_at,
        detected_after_s=first.detected_after_s if first else None,
        hangwatch_version=_version(earlier),
    )


def _version(incidents: Iterable[Incident]) -> str:
    return next((incident.hangwatch_version for incident in incidents), "")


def _tell(incident: Incident, sources: str, arguments: argparse.Namespace) -> None:
    from hangwatch import wire
    from hangwatch.commands.report import put
    from hangwatch.report import html, terminal

    if arguments.json:
        put(arguments.json, wire.dumps(incident, indent=1) + "\n")
    if arguments.html:
        put(arguments.html, html.page(incident))
    if "-" not in (arguments.json, arguments.html):
        print(f"hangwatch: from {sources}:\n")
        terminal.show(incident, sys.stdout)
