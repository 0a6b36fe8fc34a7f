"""`hangwatch doctor -- COMMAND`: what the command line refuses, and what does not leave the machine."""

from __future__ import annotations

import pytest

from hangwatch.commands import main
from hangwatch.commands.doctor import redacted
from hangwatch.doctor import Check, Job, Report, State
from hangwatch.doctor.model import Launch
from hangwatch.wire import codec


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seconds", "3", "--nproc", "2"], "--seconds 3 is too short"),
        (["--json", "-"], "are for a job's check"),
        (["torchrun", "train.py"], "put the job's command behind --"),
        (["loader"], "name one loader"),
        (["loader", "a:b", "--html", "x"], "use --json"),
    ],
)
def test_what_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_secrets_of_the_command_and_its_output_are_hidden() -> None:
    launch = Launch(("torchrun", "train.py", "--api-key", "hunter2hunter2"), 1, 2.0, "", ("password=hunter2hunter2",))
    check = Check("launch", "command", State.FAIL, "x", "y", (), launch.output)
    shown = codec.dumps(redacted(Report((check,), Job((), launch), 0.0, 1.0)))
    assert "hunter2" not in shown
    assert "train.py" in shown
