"""A rank's talks with its peers: through the job's own store, then each pair, then gloo and NCCL."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from hangwatch.doctor.model import Link
from hangwatch.wire import codec
from hangwatch_agent.doctor import groups, mesh
from hangwatch_agent.doctor.meeting import SharedFolder
from hangwatch_agent.doctor.saying import facts, say, stage

TCP_S, GLOO_S, NCCL_S = 7.0, 14.0, 14.0
GATHER_S = 4.0  # of the time, kept for telling each other what was found


def main() -> None:
    deadline = time.monotonic() + float(os.environ.get("HANGWATCH_DOCTOR_PART_S", "45")) - 1.0
    with stage("torch"):
        import torch

        facts(versions=torch_versions(torch))
    own: dict[str, Any] = json.loads(sys.stdin.readline() or "{}")
    if "torch" not in sys.modules or not own:
        return
    own["versions"] |= torch_versions(sys.modules["torch"])
    Talks(own, deadline).run()


def torch_versions(torch: Any) -> dict[str, str]:
    nccl = getattr(torch.cuda, "nccl", None)
    found = {"torch": torch.__version__, "cuda": torch.version.cuda or ""}
    if torch.distributed.is_available() and torch.distributed.is_nccl_available() and nccl is not None:
        found["nccl"] = ".".join(map(str, nccl.version()))
    return {name: text for name, text in found.items() if text}


class Talks:
    def __init__(self, own: dict[str, Any], deadline: float) -> None:
        self._own, self._deadline = own, deadline
        self._links: list[Link] = []
        self._stages: list[dict[str, Any]] = []
        self._shared = SharedFolder(own, deadline - GATHER_S)
        self._mesh = mesh.Mesh()

    def run(self) -> None:
        self._stage("store", self._connect)
        facts(store=self._shared.state)
        if not self._shared.connected:
            return
        self._stage("ranks", self._meet)
        meeting = self._shared
        self._found(roster=meeting.roster, twice=meeting.twice)
        if len(meeting.roster) > 1 and meeting.place is not None:
            self._bounded("tcp", TCP_S, self._tcp)
            self._bounded("gloo", GLOO_S, lambda: self._group("gloo"))
            if all(meeting.facts[rank].get("gpu_used") for rank in meeting.roster):
                self._bounded("nccl", NCCL_S, lambda: self._group("nccl"))
        self._gather()

    def _connect(self) -> None:
        self._shared.connect()

    def _meet(self) -> None:
        self._own["listens_at"] = [self._own.get("address") or "127.0.0.1", self._mesh.port]
        self._shared.meet()
        self._mesh.token = self._shared.token

    def _tcp(self) -> None:
        meeting = self._shared
        for peer in mesh.partners(meeting.own_rank, meeting.roster, meeting.hosts):
            address, port = meeting.facts[peer]["listens_at"]
            self._links.append(self._mesh.measure(peer, address, int(port)))

    def _group(self, backend: str) -> None:
        meeting = self._shared
        local = int(self._own.get("local_rank") or 0)
        groups.run(backend, meeting.store, meeting.roster, meeting.own_rank, meeting.hosts, local, self._links.append)

    # ------------------------------------------------------------ stages

    def _stage(self, name: str, work: Callable[[], None]) -> None:
        self._shared.note(name)
        began = time.monotonic()
        with stage(name):
            work()
            self._keep(name, began, "")

    def _bounded(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        """A stage in a thread, left behind after its time: what comes after it is done in any case."""
        seconds = min(seconds, self._deadline - GATHER_S - time.monotonic())
        if seconds <= 0:
            say(stage=name, problem="no time was left for this")
            return
        began, problems = time.monotonic(), []

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                problems.append(groups.in_words(error))

        say(stage=name)
        self._shared.note(name)
        thread = threading.Thread(target=guarded, name=f"hangwatch-{name}", daemon=True)
        thread.start()
        thread.join(seconds)
        late = f"no end within {seconds:.0f} s" if thread.is_alive() else ""
        problem = (problems or [late])[0]
        say(stage=name, done=True, took_s=time.monotonic() - began, problem=problem)
        self._keep(name, began, problem)
        self._found(links=tuple(self._links))

    def _keep(self, name: str, began: float, problem: str) -> None:
        self._stages.append({"name": name, "done": True, "took_s": time.monotonic() - began, "problem": problem})

    def _found(self, **found: Any) -> None:
        facts(**found)
        self._own |= {name: codec.encode(value) for name, value in found.items()}

    def _gather(self) -> None:
        own = self._own | {"stages": [*self._own.get("stages", ()), *self._stages], "store": "reached"}
        own["complete"], own["sequence"] = True, 0  # what a rank says itself counts more, where it is heard
        own.pop("listens_at", None)
        say(others=self._shared.gather(own, self._deadline))
