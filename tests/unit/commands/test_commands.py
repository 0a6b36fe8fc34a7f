"""The front door: subcommands, errors, exit codes, and that everything is documented."""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangwatch import commands
from hangwatch.commands import main, parser, report, run
from hangwatch.errors import HangwatchError
from hangwatch.gallery import CASES
from hangwatch.report import files
from hangwatch.settings import SettingsError
from hangwatch.wire.codec import WireError
from tests import examples

DOCS = Path(__file__).parents[3] / "docs" / "commands.md"


def _subcommands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    (action,) = parser()._subparsers._group_actions  # type: ignore[union-attr]
    assert isinstance(action.choices, dict)
    yield from action.choices.items()


def test_every_subcommand_and_option_is_documented() -> None:
    docs = DOCS.read_text()
    for name, subcommand in _subcommands():
        _, there, section = docs.partition(f"\n## hangwatch {name}\n")
        assert there, f"docs/commands.md has no section on hangwatch {name}"
        section = section.partition("\n## ")[0]
        for action in subcommand._actions:
            for option in action.option_strings:
                said = f"| `{option}`" in section or f"| `{option} " in section
                assert said or option in ("-h", "--help"), f"docs/commands.md does not explain {name} {option}"


def test_no_option_is_documented_that_is_not_there() -> None:
    known = {option for _, sub in _subcommands() for action in sub._actions for option in action.option_strings}
    for line in DOCS.read_text().splitlines():
        if line.startswith("| `--"):
            assert line.removeprefix("| `").replace("`", " ").split()[0] in known


def test_help_names_the_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, _ in _subcommands():
        assert f"\n    {name}" in out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("hangwatch ")


@pytest.mark.parametrize("argv", [["nonsense"], ["report", "--nonsense"], ["report", "a", "b"]])
def test_wrong_usage_is_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "usage: hangwatch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("rnu", "no command 'rnu'; did you mean run?"),
        ("analyse", "no command 'analyse'; did you mean analyze?"),
        ("help", "no command 'help'; did you mean --help?"),
        ("version", "no command 'version'; did you mean --version?"),
        ("torchrun", "to watch a command: hangwatch run -- COMMAND"),
        ("--", "to watch a command: hangwatch run -- COMMAND"),
        ("--versoin", "unrecognized arguments: --versoin; did you mean --version?"),
        ("--quiet", "unrecognized arguments: --quiet; options of a command stand behind it"),
    ],
)
@pytest.mark.parametrize("behind", [[], ["report"]])
def test_a_first_word_that_is_none_is_told_with_what_was_meant(
    word: str, meant: str, behind: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word, *behind]) == 2
    error = capsys.readouterr().err
    assert error.endswith(f"{meant}\n")
    assert "are required" not in error


def test_the_help_of_run_shows_where_the_command_stands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: hangwatch run [options] -- COMMAND ...\n")


@pytest.mark.parametrize("name", ["run", "report", "analyze", "doctor", "demo"])
def test_the_help_ends_with_examples_that_are_understood(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a subcommand whose examples are listed, each on a line of its own
    assert main([name, "--help"]) == 0
    _, _, listed = capsys.readouterr().out.partition("\nexamples:\n")
    examples = [shlex.split(line) for line in listed.splitlines()]
    assert examples
    monkeypatch.setattr(importlib.import_module(f"hangwatch.commands.{name}"), "run", lambda arguments: 7)
    for program, *words in examples:
        # WHEN one is typed THEN the command line takes all of it
        assert (program, words[0]) == ("hangwatch", name)
        assert main(words) == 7


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("option", "--stall-after: 0 is too short; at least 0.1 seconds are needed"),
        ("variable", "HANGWATCH_STALL_AFTER: 0 is too short; at least 0.1 seconds are needed"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_as_it_was_given(
    source: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if source == "variable":
        monkeypatch.setenv("HANGWATCH_STALL_AFTER", "0")
    words = ["--stall-after", "0"] if source == "option" else []
    assert main(["run", *words, "--", "true"]) == 2
    assert capsys.readouterr().err == f"hangwatch: {said}\n"


def test_alone_it_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: hangwatch")
    assert "dashboard" in out


@pytest.mark.parametrize("command", ["report", "run", "demo", "dashboard"])
def test_a_wrong_option_shows_the_usage_of_its_subcommand(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--nonsense"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"usage: hangwatch {command} ")
    assert "unrecognized arguments: --nonsense" in error


def test_what_happens_on_a_hang_is_explained_where_it_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for part in ("`report` leaves the job as it is", "`abort` ends the whole job", "exit code 75"):
        assert part in said


def test_every_demo_has_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["demo", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    scripts = [line for line in lines if line.startswith("    ")]
    assert len(scripts) > 40
    for line in scripts:
        sentence, _, _ = line.strip().rpartition(" (")
        assert sentence.endswith("."), line
        assert len(sentence) > 20, line
    said = [line.strip().rpartition(" (")[0].partition(" ")[2].strip() for line in scripts]
    assert [sentence for sentence in said if said.count(sentence) > 1] == [], "two jobs, and not what differs"
    assert "uneven-steps: Ranks ran out of data at different batches" in lines
    assert "straggler: One rank is slow (a warning: the job goes on)" in lines
    assert [line.split()[0] for line in scripts] == list(dict.fromkeys(line.split()[0] for line in scripts))
    assert {line.split()[0] for line in scripts} == {case.name for case in CASES}


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_of_demos_keeps_to_the_width(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["demo", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    # AND what several jobs of a cause have in common is said once
    said = " ".join(" ".join(lines).split())
    assert said.count("A task of a Slurm job trains with the RANK") == 1
    assert "every-task-is-rank-zero … Here every task has RANK=0." in said


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["run", "--stallafter", "3", "--", "true"], "; did you mean --stall-after?"),
        (["report", "--markdwon"], "; did you mean --markdown?"),
        (["report", "--xyzzy"], ""),
    ],
)
def test_an_option_that_a_command_lacks_is_told_with_what_was_meant(
    argv: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"usage: hangwatch {argv[0]}")
    assert error.endswith(f"{meant}\n") if meant else "did you mean" not in error


def test_a_demo_that_does_not_exist_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "uneven-step"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("hangwatch: no job shows 'uneven-step'; did you mean uneven-steps")
    assert error.endswith("`hangwatch demo --list` names all\n")


@pytest.mark.parametrize(
    "error", [HangwatchError("do\x1b this"), SettingsError("do\x1b this"), WireError("do\x1b this")]
)
def test_errors_that_a_user_can_mend_are_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(report, "run", fail)
    assert main(["report"]) == 2
    assert capsys.readouterr().err == "hangwatch: do\\x1b this\n"


def test_ctrl_c_is_what_a_shell_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "run", interrupted)
    assert main(["report"]) == 130


def test_the_command_behind_two_dashes_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[argparse.Namespace] = []

    def note(arguments: argparse.Namespace) -> int:
        seen.append(arguments)
        return 7

    monkeypatch.setattr(run, "run", note)
    assert main(["run", "--job", "a", "--", "torchrun", "--job", "b", "--", "-x"]) == 7
    assert seen[0].job == "a"
    assert seen[0].command == ["torchrun", "--job", "b", "--", "-x"]


def test_a_command_without_dashes_is_told_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "torchrun", "train.py"]) == 2
    expected = "hangwatch: put the command behind --: hangwatch run [options] -- torchrun train.py\n"
    assert capsys.readouterr().err == expected


def test_only_the_wanted_subcommand_is_imported() -> None:
    code = (
        "import sys; from hangwatch.commands import main; main(['report', '--help']);"
        "sys.exit(any('hangwatch.commands.' + n in sys.modules for n in ('run', 'doctor', 'dashboard', 'demo')))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    # GIVEN a report, and a pipe that nobody reads any more
    path = files.write(examples.uneven_steps(), tmp_path).json_path
    reading, writing = os.pipe()
    os.close(reading)
    # WHEN the report is printed into it
    code = "import sys; from hangwatch.commands import main; sys.exit(main(['report', '--html', '-', sys.argv[1]]))"
    done = subprocess.run([sys.executable, "-c", code, str(path)], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    # THEN the command ends as one that SIGPIPE has ended, and says nothing
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_list_of_names_is_the_files() -> None:
    assert {name for name, _ in _subcommands()} <= set(commands.SUBCOMMANDS)
