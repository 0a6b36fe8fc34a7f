"""`hangwatch report [FILE]`: an incident, told again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HELP = "print an incident again, or write it in another form"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="an incident-*.json (default: the newest one)")
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
    from hangwatch.report import files, terminal

    _markdown_of_a_report(arguments)
    path = Path(arguments.file) if arguments.file else _newest(arguments.report_dir)
    incident = files.read(path)
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


def _newest(report_dir: str | None) -> Path:
    from hangwatch.report import files
    from hangwatch.settings import Settings

    directory = Settings.load(report_dir=report_dir).report_dir
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
