"""The launchers by name: those of torch are known to the rule for ranks and to the roles of processes alike."""

from __future__ import annotations

import pytest

from hangwatch.launchers import PROGRAMS, TORCH_MODULES
from hangwatch_agent.capture.proc.tree import kind_of_command
from hangwatch_agent.shared.rank_rule import is_launcher


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_every_program_is_a_launcher_among_the_processes(program: str) -> None:
    assert kind_of_command((f"/usr/bin/{program}", "train.py")) == "launcher"
    assert kind_of_command(("python3", f"/venv/bin/{program}", "train.py")) == "launcher"


@pytest.mark.parametrize("module", TORCH_MODULES)
def test_the_modules_of_torch_are_launchers_for_both(module: str) -> None:
    assert kind_of_command(("python3", "-m", module, "train.py")) == "launcher"
    assert is_launcher(("python3", "-m", module, "train.py"))


def test_a_script_of_the_user_is_none() -> None:
    assert kind_of_command(("python3", "train.py", "--launcher")) is None
    assert not is_launcher(("python3", "train.py", "--launcher"))
