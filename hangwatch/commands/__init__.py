"""The command line. One file a subcommand, with `HELP`, `add_arguments(parser)` and `run(arguments) -> int`.

`EXAMPLES`, where a subcommand has them, are lines that its `--help` ends with.
Only the wanted subcommand is imported, and only `main` prints errors.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hangwatch.errors import HangwatchError
from hangwatch.settings import SettingsError
from hangwatch.wire.codec import WireError

SUBCOMMANDS = ("run", "report", "analyze", "doctor", "dashboard", "demo", "bench")
DESCRIPTION = "Says which rank hangs a distributed PyTorch job, on which line, why, and how to fix it."
OPTIONS = ("--help", "--version")
INTERRUPTED = 130  # what a shell reports for Ctrl-C
BROKEN_PIPE = 141
USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand, return its exit code; 2 after an error that a user can mend, told in one line."""
    own, command = _cut(list(sys.argv[1:] if argv is None else argv))
    try:
        code = _run(own, command)
        if sys.stdout is not None:  # closed before we were started
            sys.stdout.flush()
        return code
    except (HangwatchError, SettingsError, WireError) as error:
        return _complain(error)
    except BrokenPipeError:
        # The reader has left. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(own: list[str], command: list[str]) -> int:
    if not own:
        parser().print_help()
        return 0
    try:
        found = parser(own[0] if own[0] in SUBCOMMANDS else None)
        if own[0] == "--" or not (own[0].startswith("-") or own[0] in SUBCOMMANDS):
            found.error(f"no command {own[0]!r}; {_meant(own[0])}")
        arguments, strangers = found.parse_known_args(own)
        if strangers and own[0].startswith("-"):
            found.error(f"unrecognized arguments: {' '.join(strangers)}; {_meant(own[0])}")
        if strangers and (own[0] not in ("run", "doctor") or strangers[0].startswith("-")):
            # The subcommand's own usage: the main parser would list the subcommands, which were no question.
            arguments.parser.error(
                f"unrecognized arguments: {' '.join(strangers)}{_nearest(strangers, arguments.parser)}"
            )
    except SystemExit as exit:  # --help, --version, and usage errors, which argparse has printed
        return exit.code if isinstance(exit.code, int) else USAGE
    if strangers:
        raise HangwatchError(f"put the command behind --: hangwatch {own[0]} [options] -- {' '.join(strangers)}")
    arguments.command = command
    code: int = arguments.run(arguments)
    return code


def _meant(word: str) -> str:
    """What may have been meant by the first word, where it is no command and no option."""
    from hangwatch.commands.did_you_mean import did_you_mean

    if word in ("help", "version"):
        return f"did you mean --{word}?"
    if word.startswith("-") and word != "--":
        return did_you_mean(word, OPTIONS).strip() or "options of a command stand behind it"
    near = did_you_mean(word, SUBCOMMANDS).strip()
    return near or f"there are {', '.join(SUBCOMMANDS)}; to watch a command: hangwatch run -- COMMAND"


def _nearest(strangers: list[str], subcommand: argparse.ArgumentParser) -> str:
    """The subcommand's options that the first unknown one may have been meant to be."""
    from hangwatch.commands.did_you_mean import did_you_mean

    option = strangers[0].partition("=")[0]
    near = did_you_mean(option, subcommand._option_string_actions) if option.startswith("--") else ""
    return f"; {near.strip()}" if near else ""


def _cut(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, and the command behind `--` that `hangwatch run` and `hangwatch doctor` start."""
    if argv[:1] not in (["run"], ["doctor"]) or "--" not in argv:
        return argv, []
    dashes = argv.index("--")
    return argv[:dashes], argv[dashes + 1 :]


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all subcommands, or of `only` one, so that the others need not be imported."""
    result = argparse.ArgumentParser(prog="hangwatch", description=DESCRIPTION)
    result.add_argument("--version", action=_Version)
    # Not required: argparse would ask for a command where an option is misspelt.
    subparsers = result.add_subparsers(metavar="COMMAND")
    for name in SUBCOMMANDS if only is None else (only,):
        module = _module(name)
        if module is not None:
            added = subparsers.add_parser(
                name,
                help=module.HELP,
                description=module.HELP,
                epilog="\n  ".join(("examples:", *examples)) if (examples := _examples(module)) else None,
                formatter_class=_Formatter,
            )
            module.add_arguments(added)
            added.set_defaults(run=module.run, parser=added)
    return result


def _module(name: str) -> ModuleType | None:
    where = f"{__name__}.{name}"
    return importlib.import_module(where) if importlib.util.find_spec(where) else None


def _examples(module: ModuleType) -> tuple[str, ...]:
    return getattr(module, "EXAMPLES", ())


def _complain(error: Exception) -> int:
    from hangwatch.report.words import clean

    print(f"hangwatch: {clean(str(error))}", file=sys.stderr)
    return USAGE


class _Formatter(argparse.HelpFormatter):
    """Wraps texts as ever, but leaves those alone that have lines of their own, as examples do."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="say the version and end")

    def __call__(self, parser: argparse.ArgumentParser, *ignored: Any) -> None:
        from importlib import metadata

        try:
            version = metadata.version("hangwatch")
        except metadata.PackageNotFoundError:
            version = "of a checkout that is not installed"
        print(f"hangwatch {version}")
        parser.exit()
