"""`hangwatch analyze FILES...`: judge a hang afterwards, from the files that are left of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hangwatch.commands.evidence_files import Pile
    from hangwatch.model import Incident, Judgement, Snapshot

HELP = "judge a hang from files: reports of several nodes, boards of dead ranks, flight-recorder dumps, logs"

EXAMPLES = (
    "hangwatch analyze hangwatch-reports/",
    "hangwatch analyze /tmp/nccl_trace_rank_* train.log --html verdict.html",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="files, or folders with such files")
    parser.add_argument("--json", metavar="OUT", help="write the merged report as JSON; - is standard output")
    parser.add_argument("--html", metavar="OUT", help="write the merged report as one HTML file; - is standard output")
    parser.add_argument("--markdown", metavar="OUT", help="write the verdict as Markdown; - is standard output")
    parser.add_argument("--verbose", action="store_true", help="print the whole argument and all evidence")


def run(arguments: argparse.Namespace) -> int:
    from hangwatch import logs
    from hangwatch.commands import evidence_files, evidence_snapshots
    from hangwatch.report import files, words

    pile = evidence_files.sort_out(map(Path, arguments.files))
    snapshots = evidence_snapshots.snapshots(pile)
    in_vain = [*pile.plain] or pile.passed
    if not snapshots and in_vain and not pile.problems:
        _tell_of_nothing_wrong(logs.nothing_of_use(in_vain, pile.logs), arguments)
        return 0
    for problem in (*evidence_files.problems(pile), *filter(None, map(evidence_snapshots.nowhere, snapshots))):
        print(f"hangwatch: {words.clean(problem)}", file=sys.stderr)
    if not snapshots:
        raise files.ReportError("none of these files can be used; wanted: incident-*.json, rank-*.board, dumps, logs")
    if len(snapshots) > 1 and (arguments.json or arguments.html or arguments.markdown):
        raise files.ReportError(f"these files are of {len(snapshots)} jobs; give those of one job to write one report")
    for snapshot in snapshots:
        judged = _judgement(snapshot, pile)
        if judged is None:
            first, *rest = pile.assessment.sentences
            _tell_of_nothing_wrong((f"from {evidence_files.kinds(pile)}: {first}", *rest), arguments)
        else:
            _tell(_judged(snapshot, judged, pile), evidence_files.kinds(pile), arguments)
    return 0


def _judgement(snapshot: Snapshot, pile: Pile) -> Judgement | None:
    """The verdict of all evidence together; None where dumps and logs are all there is, and show nothing wrong.

    What the queues say counts where reports and boards, which know the hosts too, name no rank.
    """
    from hangwatch.commands import evidence_stacks
    from hangwatch.judge import diagnose

    if not (pile.dumps or pile.logs):
        kept = _kept(snapshot, pile)
        return diagnose(snapshot) if kept is None else kept
    said = evidence_stacks.judged(pile.assessment.judgement, snapshot, pile)
    if not (pile.incidents or pile.boards):
        return said
    judged = diagnose(snapshot)
    return said if said is not None and said.verdict.culprits and not judged.verdict.culprits else judged


def _kept(snapshot: Snapshot, pile: Pile) -> Judgement | None:
    """The verdict of a report that was made of dumps, which held more than the report does; None for other reports."""
    from hangwatch.model import Judgement
    from hangwatch.queues.evidence import DUMPS

    own = [incident for _, incident in pile.incidents if incident.job.id == snapshot.job.id]
    if len(own) != 1 or pile.boards or snapshot.job.id != DUMPS:
        return None
    return Judgement(own[0].status, own[0].stage, own[0].verdict)


def _tell_of_nothing_wrong(sentences: Sequence[str], arguments: argparse.Namespace) -> None:
    from hangwatch.report import words

    out = sys.stderr if "-" in (arguments.json, arguments.html, arguments.markdown) else sys.stdout
    first, *rest = sentences
    print(f"hangwatch: {words.clean(first)}", file=out)
    for sentence in rest:
        print(f"  {words.clean(sentence)}", file=out)
    if arguments.json or arguments.html or arguments.markdown:
        print("hangwatch: no report is written, since there is no incident", file=sys.stderr)


def _judged(snapshot: Snapshot, judged: Judgement, pile: Pile) -> Incident:
    """The incident as the first report tells of it, with the verdict of all evidence together."""
    from hangwatch.report.incident import incident, new_id

    earlier = [known for _, known in pile.incidents if known.job.id == snapshot.job.id]
    first = min(earlier, key=lambda known: known.opened_at, default=None)
    from hangwatch.report import next_time

    made = incident(
        judged,
        snapshot,
        id=first.id if first else new_id(),
        opened_at=first.opened_at if first else snapshot.taken_at,
        detected_after_s=first.detected_after_s if first else _unmoved_s(pile),
        hangwatch_version=_version(earlier),
    )
    return replace(made, check_next=next_time.checks(made))


def _unmoved_s(pile: Pile) -> float | None:
    """How long nothing had moved, where dumps and logs are all there is: 0 where they do not tell."""
    from hangwatch.queues import unmoved_s

    return None if pile.boards or pile.incidents else unmoved_s(pile.queues) or 0.0


def _version(incidents: Iterable[Incident]) -> str:
    return next((incident.hangwatch_version for incident in incidents), "")


def _tell(incident: Incident, sources: str, arguments: argparse.Namespace) -> None:
    from hangwatch.commands.report import put
    from hangwatch.report import html, markdown, terminal
    from hangwatch.wire import codec

    if arguments.json:
        put(arguments.json, codec.dumps(incident, indent=1) + "\n")
    if arguments.html:
        put(arguments.html, html.page(incident))
    if arguments.markdown:
        put(arguments.markdown, markdown.render(incident))
    if "-" not in (arguments.json, arguments.html, arguments.markdown):
        print(f"hangwatch: from {sources}:\n")
        terminal.show(incident, sys.stdout, verbose=arguments.verbose)
        sys.stdout.write(terminal.next_time(incident))
