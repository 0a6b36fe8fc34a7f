"""Hosts for `hangwatch doctor`: the network namespaces of the dashboard's tests, and a remote shell between them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from hangwatch.doctor import Report
from hangwatch.wire import codec
from tests.integration.dashboard.hosts import Lab, sh
from tests.integration.dashboard.processes import ROOT

SHELL = """#!/bin/sh
# HOST COMMAND: what ssh would do. No folder is shared between these hosts: the probes' lines are all that comes home.
host=$1; shift
test -e "{folder}/$host.down" && exec sleep 600
said=$(echo "$*" | sed -e 's/HANGWATCH_DOCTOR_DIR=[^ ]*//' -e "$(cat "{folder}/$host.sed" 2>/dev/null)")
exec ip netns exec {prefix}-$host unshare --uts sh -c "hostname $host && unset HANGWATCH_DOCTOR_DIR && exec $said"
"""


class Hosts(Lab):
    """node-a, node-b, ... with `doctor()`, which is asked on node-a about all of them."""

    def __init__(self, closing: ExitStack, folder: Path, hosts: int) -> None:
        super().__init__(closing, folder, hosts)
        self._shell = folder / "rsh"
        self._shell.write_text(SHELL.format(folder=folder, prefix=self._name))
        self._shell.chmod(0o700)

    def inside(self, host: str, command: str) -> None:
        self._in(host, command)

    def switch(self, command: str) -> None:
        self._in("switch", command)

    def give(self, host: str, name: str, value: str) -> None:
        """A variable for the ranks of one host alone; what PYTHONPATH is given comes before what is there."""
        edit = f"s#{name}=#{name}={value}:#" if name == "PYTHONPATH" else f"s#^env #env {name}={value} #"
        with (self.folder / f"{host}.sed").open("a") as file:
            file.write(edit + "\n")

    def never_starts(self, host: str) -> None:
        """What is started there comes to nothing, without a word."""
        (self.folder / f"{host}.down").touch()

    def doctor(self, *options: str, hosts: list[str] | None = None, seconds: float = 60, **variables: str) -> Report:
        """`hangwatch doctor --hosts ...`, asked on node-a; its JSON."""
        paths = os.pathsep.join(str(ROOT / part) for part in ("", "agent", "dashboard"))
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | variables
        command = [
            sys.executable,
            "-m",
            "hangwatch",
            "doctor",
            "--hosts",
            ",".join(hosts or self.hosts),
            "--nproc",
            "1",
        ]
        command += ["--remote-shell", str(self._shell), "--seconds", str(seconds), "--json", "-", *options]
        done = subprocess.run(
            ["ip", "netns", "exec", self._namespace(self.hosts[0]), *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        return codec.decode(Report, json.loads(done.stdout))


__all__ = ["Hosts", "sh"]
