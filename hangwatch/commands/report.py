"""`hangwatch report [FILE]`: an incident, told again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hangwatch.model import Incident

HELP = "print an incident again, or write it in another form"
EXAMPLES = ("hangwatch report", "hangwatch report hangwatch-reports/ --html verdict.html")
LOGS = (".log", ".out", ".err")
MOST_LISTED = 8  # names of what a folder without a report holds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="an incident-*.json, or a folder: its newest one (default: --report-dir)",
    )
    parser.add_argument("--report-dir", metavar="DIR", help="where to look for the newest one (hangwatch-reports)")
    parser.add_argument("--verbose", action="store_true", help="print the whole argument and all evidence")
    forms = parser.add_argument_group("in another form", "OUT is a file to write; - is standard output")
    form = forms.add_mutually_exclusive_group()
    form.add_argument("--diff", action="store_true", help="print how the ranks' recorded calls differ, side by side")
    form.add_argument("--html", metavar="OUT", help="all of it as one HTML file")
    form.add_argument("--json", metavar="OUT", help="all of it as JSON")
    form.add_argument("--summary", metavar="OUT", help="as JSON without the ranks' stacks, calls and processes")
    form.add_argument(
        "--markdown", metavar="OUT", nargs="?", const="-", help="the verdict as Markdown for an issue or a chat (-)"
    )
    form.add_argument("--speedscope", metavar="OUT", help="the merged stacks for speedscope.app")


def run(arguments: argparse.Namespace) -> int:
    from hangwatch.report import terminal

    _markdown_of_a_report(arguments)
    path = _report_of(Path(arguments.file)) if arguments.file else _newest(arguments.report_dir)
    incident = _read(path)
    if arguments.html:
        from hangwatch.report import html

        put(arguments.html, html.page(incident))
    elif arguments.json:
        from hangwatch.wire import codec

        put(arguments.json, codec.dumps(incident, indent=1) + "\n")
    elif arguments.diff:
        from hangwatch.report import diff

        sys.stdout.write(diff.render(incident))
    elif arguments.summary:
        from hangwatch.report import summary
        from hangwatch.wire import codec

        put(arguments.summary, codec.dumps(summary.of(incident), indent=1) + "\n")
    elif arguments.markdown:
        from hangwatch.report import markdown

        put(arguments.markdown, markdown.render(incident, report=path.name))
    elif arguments.speedscope:
        from hangwatch.report import speedscope

        put(arguments.speedscope, speedscope.render(incident))
    else:
        beside = path.with_suffix(".html")
        terminal.show(incident, sys.stdout, report=str(beside if beside.exists() else path), verbose=arguments.verbose)
    return 0


def _markdown_of_a_report(arguments: argparse.Namespace) -> None:
    """`--markdown incident-1.json` means the report: the Markdown would replace it, and be that of another one."""
    if arguments.file is None and (arguments.markdown or "").endswith((".json", ".html")):
        arguments.file, arguments.markdown = arguments.markdown, "-"


def _report_of(path: Path) -> Path:
    """The report that a user has named: the file, or the newest one of a folder, which is told then."""
    from hangwatch.report import files, words

    if not path.is_dir():
        return path
    newest = files.latest(path)
    if newest is None:
        raise files.ReportError(f"no incident in {path}: {_listed(path)}")
    print(f"hangwatch: the newest report in {words.clean(str(path))} is {words.clean(newest.name)}", file=sys.stderr)
    return newest


def _listed(folder: Path) -> str:
    """What a folder holds, in words."""
    try:
        names = sorted(f"{each.name}/" if each.is_dir() else each.name for each in folder.iterdir())
    except OSError as error:
        return (error.strerror or str(error)).lower()
    if not names:
        return "it is empty"
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"it holds {', '.join(names[:MOST_LISTED])}{more}"


def _read(path: Path) -> Incident:
    """The incident in a file. Raises ReportError, which names the command for evidence that is no report."""
    from hangwatch.report import files

    try:
        return files.read(path)
    except files.ReportError as error:
        kind = _kind_of_evidence(path)
        if not kind:
            raise
        raise files.ReportError(f"{path} is a {kind}, no report; judge it with: hangwatch analyze {path}") from error


def _kind_of_evidence(path: Path) -> str:
    """What a file is that is for `hangwatch analyze`; "" of any other.

    A log by its name, too: what a log must have to be of use is said there.
    """
    from hangwatch.commands import evidence_files

    if not path.is_file():  # a pipe has been read, and would be waited for
        return ""
    if path.suffix in LOGS:
        return "log"
    pile = evidence_files.sort_out([path])
    found = {"flight-recorder dump": pile.dumps, "board": pile.boards, "log": pile.logs.files}
    return next((kind for kind, files in found.items() if files), "")


def _newest(report_dir: str | None) -> Path:
    from hangwatch.report import files
    from hangwatch.settings import Settings

    directory = Settings.of_options(report_dir=report_dir).report_dir
    path = files.latest(directory)
    if path is None:
        raise files.ReportError(f"no incident in {directory}; name a file, or the place with --report-dir")
    return path


def put(out: str, text: str) -> None:
    """Write text to the file `out`, or to standard output for "-". Raises ReportError."""
    from hangwatch.report import files

    if out == "-":
        sys.stdout.write(text)
    else:
        files.write_named(Path(out), text)
        print(f"hangwatch: wrote {out}")
