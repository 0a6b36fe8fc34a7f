"""Measures a dashboard under load: `python -m hangwatch_dashboard.loadgen`.

**The ranks are simulated.** There is no training and no watchdog: this process opens one connection a node and sends
what a watchdog's link would send, a batch a second, to a real dashboard process. What is measured is the dashboard:
how long it takes to acknowledge a batch, whether every acknowledged batch is in its store, how much memory it needs,
and with --capture how long a capture of all nodes takes from the request to the judgement.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import math
import os
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from hangwatch_dashboard.simulated import Node
from hangwatch_dashboard.store.store import Store

WORDS = "simulated ranks: no training ran, only the dashboard is measured"
JUDGED_S = 90.0  # until a capture must be judged
ANSWER_S = 30.0  # until the dashboard must answer a GET
SWITCH_S = 0.0002


@dataclass
class Figures:
    """What came of it. Latencies are seconds from sending a batch to its acknowledgement."""

    latencies: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)  # how far behind its second a batch was sent
    answers: Counter[int] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    acknowledged: dict[str, int] = field(default_factory=dict)
    most_resident: int = 0  # of the dashboard while batches come
    processor_s: float = 0.0  # of the dashboard's own process meanwhile
    during: Figures | None = None  # the same of the batches that came during the capture
    most_judging: int = 0  # of it and the process that judges, during the capture

    def quantile(self, part: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


class Connection:
    """One kept connection, as the link keeps one."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._host, self._port, self._token = host, port, token
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, kind: str, body: bytes) -> tuple[int, bytes]:
        """Sends a body and returns the status and the answer. Raises OSError and asyncio.IncompleteReadError."""
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        authorization = f"Authorization: Bearer {self._token}\r\n" if self._token else ""
        head = (
            f"POST /api/v1/ingest/{kind} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n{authorization}"
            f"Content-Type: application/json\r\nContent-Encoding: gzip\r\nHangwatch-Sent-At: {time.time():.6f}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lines = answer.decode("latin-1").lower().split("\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith("content-length:"))
        return int(lines[0].split()[1]), await self._reader.readexactly(length)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


async def drive(node: Node, connection: Connection, first: float, until: float, figures: Figures) -> None:
    """Sends one node's batches, one a second, and its part of every capture that it is asked for."""
    try:
        await _drive(node, connection, first, until, figures)
    finally:  # cancelled, too: the dashboard would wait at its end for what is half sent
        connection.close()


async def _drive(node: Node, connection: Connection, first: float, until: float, figures: Figures) -> None:
    moment = first
    while moment < until:
        await asyncio.sleep(max(0.0, moment - time.time()))
        figures.late_s.append(time.time() - moment)
        body = node.batch(time.time())
        started = time.perf_counter()
        try:
            status, answer = await connection.post("batch", body)
            figures.latencies.append(time.perf_counter() - started)
            figures.answers[status] += 1
            if status == 200:
                figures.acknowledged[node.name] = node.sequence
                for command in json.loads(answer)["commands"]:
                    if command["kind"] == "capture":
                        # Aside: compressing evidence here would be measured as if the dashboard were slow.
                        evidence = await asyncio.to_thread(node.capture, command["request"], time.time())
                        await connection.post("capture", evidence)
        except (OSError, asyncio.IncompleteReadError) as error:
            figures.errors[type(error).__name__] += 1
            connection.close()
        moment += 1.0


async def watch_memory(pid: int, figures: Figures, nodes: Sequence[Node]) -> None:
    while True:
        if nodes[0].hung_at:
            judging = sum(map(resident, [pid, *children(pid)]))
            figures.most_judging = max(figures.most_judging, judging)
        else:
            figures.most_resident = max(figures.most_resident, resident(pid))
        await asyncio.sleep(0.2)


def resident(pid: int) -> int:
    """Resident bytes of a process; 0 for one that has gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def processor_s(pid: int) -> float:
    """Processor time that a process has used. Raises psutil.Error for one that has gone."""
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


async def measure(
    host: str, port: int, pid: int, nodes: Sequence[Node], seconds: float, capture: bool
) -> tuple[Figures, float]:
    """Drives all nodes for so many seconds; then, with `capture`, hangs them all and waits for the judgement."""
    figures, token = Figures(), os.environ.get("HANGWATCH_INGEST_TOKEN", "")
    memory = asyncio.create_task(watch_memory(pid, figures, nodes))
    begin, used = time.time() + 2.0, processor_s(pid)
    end = begin + seconds
    # Batches are spread over the second, as those of nodes that started at different times are.
    tasks = [
        asyncio.create_task(drive(node, Connection(host, port, token), begin + index / len(nodes), end, figures))
        for index, node in enumerate(nodes)
    ]
    await asyncio.gather(*tasks)
    figures.processor_s = processor_s(pid) - used
    used = processor_s(pid)
    judged_s = await hang(host, port, nodes, token, figures) if capture else float("nan")
    if figures.during is not None:
        figures.during.processor_s = processor_s(pid) - used
    memory.cancel()
    return figures, judged_s


async def hang(
    host: str, port: int, nodes: Sequence[Node], token: str, figures: Figures, longest_s: float = JUDGED_S
) -> float:
    """Lets no rank move any more. Returns the seconds from the dashboard's request for evidence to its judgement.

    NaN where there is none after `longest_s`. GETs that fail are counted in `figures.during`: a dashboard that is too
    busy to answer is what is measured here.
    """
    moment = time.time()
    for node in nodes:
        node.hang(moment)
    more, end = Figures(), moment + longest_s
    figures.during = more
    tasks = [
        asyncio.create_task(drive(node, Connection(host, port, token), moment + index / len(nodes), end, more))
        for index, node in enumerate(nodes)
    ]
    base = f"http://{host}:{port}/api/v1"
    try:
        while time.time() < end:
            await asyncio.sleep(0.5)
            try:
                judged_s = await asyncio.to_thread(_judged_s, base)
            except (OSError, http.client.HTTPException) as error:
                more.errors[f"GET: {type(error).__name__}"] += 1
                continue
            if judged_s is not None:
                return judged_s
    finally:
        for task in tasks:
            task.cancel()
    return float("nan")


def _judged_s(base: str) -> float | None:
    """How long the first capture took, which is printed; None while it is under way. Raises OSError, HTTPException."""
    job = _get(f"{base}/jobs")["jobs"][0]
    captures = _get(f"{base}/jobs/{job['key']}/captures")["captures"]
    done = [one for one in captures if one["state"] != "asked"]
    if not done:
        return None
    last = done[-1]
    answered, asked = len(last["nodes_answered"]), len(last["nodes_asked"])
    print(f"capture: {last['state']}, {answered} of {asked} nodes answered in time: {job['state_text'][:200]}")
    return float(last["done_at"] - last["asked_at"])


def _get(url: str) -> Any:
    token = os.environ.get("HANGWATCH_READ_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=ANSWER_S) as answer:
        return json.load(answer)


def lost(database: str, acknowledged: dict[str, int]) -> int:
    """How many nodes' last acknowledged batch is not in the store. The dashboard must have ended."""
    store = Store(database, "loadgen")
    try:
        kept = {row.node: row.sequence for run in store.runs_seen_since(0, 10) for row in store.nodes_of(run.key)}
    finally:
        store.close()
    return sum(kept.get(node, -1) < sequence for node, sequence in acknowledged.items())


async def run(arguments: argparse.Namespace) -> int:
    print(WORDS)
    sys.setswitchinterval(SWITCH_S)  # else threads that make evidence hold up the clock that measures the dashboard
    nodes = [Node(number, arguments.ranks, arguments.nodes * arguments.ranks) for number in range(arguments.nodes)]
    for node in nodes:
        node.prepare(capture=arguments.capture)
    with tempfile.TemporaryDirectory() as folder:
        database = arguments.database or str(Path(folder) / "load.db")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hangwatch", "dashboard", "--port", str(arguments.port), "--database", database,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        if not (await process.stdout.readline()).startswith(b"hangwatch: dashboard at"):
            return 1
        try:
            figures, judged_s = await measure(
                "127.0.0.1", arguments.port, process.pid, nodes, arguments.seconds, arguments.capture
            )
        finally:
            process.terminate()
            await process.wait()
        missing = lost(database, figures.acknowledged)
    return report(figures, missing, judged_s, arguments)


def report(figures: Figures, missing: int, judged_s: float, arguments: argparse.Namespace) -> int:
    """Prints the figures. Returns 0 if nothing was lost, and the capture that was asked for was judged."""
    sent = len(figures.latencies)
    print(f"{arguments.nodes} nodes x {arguments.ranks} ranks, {arguments.seconds:.0f} s: {sent} batches")
    print(f"answers {dict(figures.answers)}, errors {dict(figures.errors)}, nodes with lost batches {missing}")
    print(
        f"acknowledged in p50 {figures.quantile(0.5) * 1e3:.1f} ms, p99 {figures.quantile(0.99) * 1e3:.1f} ms, "
        f"p99.9 {figures.quantile(0.999) * 1e3:.1f} ms, longest {figures.quantile(1) * 1e3:.0f} ms"
    )
    print(f"sent late by at most {max(figures.late_s, default=0.0):.2f} s")
    print(f"processor time of the dashboard {figures.processor_s / max(sent, 1) * 1e3:.2f} ms a batch")
    print(f"memory of the dashboard at most {figures.most_resident / 1e6:.0f} MB")
    if figures.during is not None:
        if math.isnan(judged_s):
            print(f"capture of all nodes: not judged within {JUDGED_S:.0f} s")
        else:
            print(f"capture of all nodes, from the request to the judgement: {judged_s:.1f} s")
        print(
            f"batches meanwhile: {dict(figures.during.answers)}, errors {dict(figures.during.errors)}, "
            f"p50 {figures.during.quantile(0.5) * 1e3:.0f} ms, p99 {figures.during.quantile(0.99) * 1e3:.0f} ms, "
            f"longest {figures.during.quantile(1) * 1e3:.0f} ms; processor time of the dashboard's own process "
            f"{figures.during.processor_s:.1f} s"
        )
        print(f"memory meanwhile, with the process that judges: at most {figures.most_judging / 1e6:.0f} MB")
    wrong = missing + sum(figures.errors.values()) + sum(n for status, n in figures.answers.items() if status != 200)
    unjudged = figures.during is not None and math.isnan(judged_s)
    return 1 if wrong or unjudged else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--port", type=int, default=18470)
    parser.add_argument("--database", default="", help="by default an SQLite file that is deleted afterwards")
    parser.add_argument("--capture", action="store_true", help="at the end hang all ranks and wait for the judgement")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
