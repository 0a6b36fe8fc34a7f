"""What is launched where no command is given: the probes alone, here or on other hosts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence

REMOTE_SHELL = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "StrictHostKeyChecking=accept-new")
LAUNCHERS_OWN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


def command(nproc: int, hosts: Sequence[str], remote_shell: Sequence[str]) -> list[str]:
    """The launcher of `nproc` ranks on each host."""
    plan = json.dumps({"nproc": nproc, "hosts": list(hosts), "shell": list(remote_shell)})
    return [sys.executable, "-m", "hangwatch.doctor.ranks_here", plan]


def environment(inherited: Mapping[str, str] | None) -> dict[str, str]:
    """Without what another launcher has said of us: the launcher of the probes would be taken for a rank."""
    given = os.environ if inherited is None else inherited
    return {name: value for name, value in given.items() if name not in LAUNCHERS_OWN}
