"""Several hosts on one machine: network namespaces with addresses and names of their own, behind two switches.

Every host has `train`, over which the ranks talk, and `manage`, over which its watchdog reaches the dashboard; a cable
of one can be pulled while the other stays. The dashboard has a namespace of its own. Needs root and iproute2.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tests.integration.dashboard.processes import ROOT, until

INGEST, READ = "ingest-0123456789abcdef", "read-0123456789abcdef"
PORT = 8470


def sh(command: str) -> None:
    subprocess.run(command.split(), check=True)


class Lab:
    """Hosts node-a, node-b, ... and a dashboard. `closing` takes everything down again."""

    def __init__(self, closing: ExitStack, folder: Path, hosts: int) -> None:
        self.folder = folder
        self._closing, self._name = closing, f"hw{os.getpid()}"
        self.hosts = [f"node-{letter}" for letter in "abcdef"[:hosts]]
        self._add_namespace("switch")
        for kind in ("train", "manage"):
            self._in("switch", f"ip link add {kind} type bridge")
            self._in("switch", f"ip link set {kind} up")
        for number, host in enumerate(self.hosts, 1):
            self._add_namespace(host)
            self._plug(host, "train", f"10.79.0.{number}")
            self._plug(host, "manage", f"10.80.0.{number}")
        self._add_namespace("dashboard")
        self._plug("dashboard", "manage", "10.80.0.100")
        self._plug_ourselves()
        self.address = f"http://10.80.0.100:{PORT}"
        names = "".join(f"10.79.0.{number} {host}\n" for number, host in enumerate(self.hosts, 1))
        for host in self.hosts:
            own = Path("/etc/netns") / self._namespace(host)
            own.mkdir(parents=True)
            (own / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
            closing.callback(own.rmdir)
            closing.callback((own / "hosts").unlink)

    def _namespace(self, name: str) -> str:
        return f"{self._name}-{name}"

    def _add_namespace(self, name: str) -> None:
        sh(f"ip netns add {self._namespace(name)}")
        self._closing.callback(sh, f"ip netns del {self._namespace(name)}")
        self._closing.callback(self._end_what_is_left, name)
        self._in(name, "ip link set lo up")

    def _end_what_is_left(self, name: str) -> None:
        """Ranks are in sessions of their own: where their watchdog was killed, nothing else ends them."""
        self.signal_all(name, signal.SIGKILL)

    def signal_all(self, name: str, sent: signal.Signals) -> None:
        """Sends a signal to every process of a host at once, its watchdog and its ranks."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self._namespace(name)], stdout=subprocess.PIPE, text=True, check=False
        )
        for pid in map(int, listed.stdout.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, sent)

    def power_off(self, host: str) -> None:
        """A loss of power: no process is told to end, and no kernel is left to close the connections."""
        for kind in ("train", "manage"):
            self.pull(host, kind)
        self.signal_all(host, signal.SIGKILL)

    def _in(self, name: str, command: str) -> None:
        sh(f"ip netns exec {self._namespace(name)} {command}")

    def _plug(self, host: str, kind: str, address: str) -> None:
        """A cable between a host's `kind` and the switch of that name."""
        port = self._port(host, kind)
        self._in("switch", f"ip link add {port} type veth peer name {kind} netns {self._namespace(host)}")
        self._in("switch", f"ip link set {port} master {kind} up")
        self._in(host, f"ip address add {address}/24 dev {kind}")
        self._in(host, f"ip link set {kind} up")

    def _plug_ourselves(self) -> None:
        """The tests' own cable, to read what the dashboard says."""
        sh(f"ip link add {self._name} type veth peer name tests netns {self._namespace('switch')}")
        self._closing.callback(
            lambda: subprocess.run(["ip", "link", "del", self._name], check=False, stderr=subprocess.DEVNULL)
        )
        self._in("switch", "ip link set tests master manage up")
        sh(f"ip address add 10.80.0.200/24 dev {self._name}")
        sh(f"ip link set {self._name} up")

    @staticmethod
    def _port(host: str, kind: str) -> str:
        return f"{kind[:5]}-{host[-6:]}"

    def shape(self, host: str, rate: str) -> None:
        """Lets what a host sends over `train` through a token bucket, as tc-tbf(8) takes it."""
        self._in(host, f"tc qdisc add dev train root tbf {rate}")

    def pull(self, host: str, kind: str = "train") -> None:
        """Pulls a cable out of the switch. The hosts keep their own end up."""
        self._in("switch", f"ip link set {self._port(host, kind)} nomaster")

    def start_dashboard(self) -> subprocess.Popen[str]:
        """Starts the dashboard in its namespace, with tokens, for it is not on loopback."""
        paths = os.pathsep.join(str(ROOT / part) for part in ("", "agent", "dashboard"))
        environment = os.environ | {
            "PYTHONPATH": f"{paths}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "HANGWATCH_INGEST_TOKEN": INGEST,
            "HANGWATCH_READ_TOKEN": READ,
        }
        command = [sys.executable, "-m", "hangwatch", "dashboard", "--host", "10.80.0.100", "--port", str(PORT)]
        command += ["--database", str(self.folder / "dashboard.db")]
        process = subprocess.Popen(
            ["ip", "netns", "exec", self._namespace("dashboard"), *command],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._closing.callback(end, process)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("hangwatch: dashboard at ")
        return process

    def train(
        self,
        host: str,
        script: str,
        *arguments: str,
        per_node: int = 2,
        reports: Path | None = None,
        **settings: str,
    ) -> subprocess.Popen[bytes]:
        """Starts `hangwatch run -- torchrun ...` on a host, as its user would.

        With `reports` there is no dashboard: that is the directory for reports, which hosts may share.
        """
        number = self.hosts.index(host) + 1
        paths = os.pathsep.join(str(ROOT / part) for part in ("", "agent", "dashboard"))
        environment = os.environ | {
            "PYTHONPATH": f"{paths}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "HANGWATCH_TOKEN": INGEST,
            "HANGWATCH_RUN_DIR": str(self.folder / host / "run"),
            "GLOO_SOCKET_IFNAME": "train",
            "OMP_NUM_THREADS": "1",
            **{f"HANGWATCH_{name.upper()}": value for name, value in settings.items()},
        }
        watch = ["-m", "hangwatch", "run", "--report-dir", str(reports or self.folder / host)]
        watch += ["--"] if reports else ["--dashboard", self.address, "--"]
        torchrun = ["-m", "torch.distributed.run", "--nnodes", str(len(self.hosts)), "--nproc-per-node", str(per_node)]
        torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "10.79.0.1:29411", "--rdzv-id", "lab"]
        torchrun += ["--local-addr", f"10.79.0.{number}"]
        python = [sys.executable]
        command = [*python, *watch, *python, *torchrun, str(ROOT / "hangwatch" / "gallery" / script), *arguments]
        renamed = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host, *command]
        log = (self.folder / f"{host}.log").open("wb")
        self._closing.callback(log.close)
        process = subprocess.Popen(
            ["ip", "netns", "exec", self._namespace(host), *renamed],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._closing.callback(end_all, process)
        return process

    def get(self, path: str) -> Any:
        """The JSON at a path below /api/v1."""
        request = urllib.request.Request(f"{self.address}/api/v1{path}", headers={"Authorization": f"Bearer {READ}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    @property
    def job(self) -> Any:
        """The only job, in detail."""
        (found,) = self.get("/jobs")["jobs"]
        return self.get(f"/jobs/{found['key']}")

    def said(self, host: str) -> str:
        """What the host's terminal shows."""
        return (self.folder / f"{host}.log").read_text(errors="replace")

    def until(self, wanted: Any, timeout: float = 60.0) -> Any:
        try:
            return until(wanted, timeout)
        except AssertionError:
            logs = "\n".join(self.said(host)[-2000:] for host in self.hosts)
            raise AssertionError(f"it did not happen in time; the hosts say:\n{logs}") from None


def end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
    process.wait(20)
    if process.stdout is not None:
        process.stdout.close()


def end_all(process: subprocess.Popen[bytes]) -> None:
    """Ends a host's job, whatever is left of it: hung ranks do not react to SIGTERM."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
        except ProcessLookupError:
            break
        time.sleep(0.5)
    process.wait(20)
