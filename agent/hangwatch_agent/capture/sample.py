"""Facts and stacks of many processes at about one moment: what a capture takes twice."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hangwatch.model import ProcessFacts, Socket
from hangwatch_agent.capture.options import CaptureOptions, Target
from hangwatch_agent.capture.proc import sockets
from hangwatch_agent.capture.proc.process import process_facts
from hangwatch_agent.capture.proc.tcp_counters import tcp_counters
from hangwatch_agent.capture.stacks import py_spy
from hangwatch_agent.capture.stacks.by_faulthandler import Asked, ask_faulthandler
from hangwatch_agent.capture.stacks.py_spy import Dump
from hangwatch_agent.shared.procfs import Table

MOST_STACKS = 160  # of a job with more processes on one machine, the ranks and workers come first


@dataclass(frozen=True)
class Sample:
    """Facts by pid, and dumps by pid for those whose stacks were taken. `table` has all processes of the machine."""

    facts: Mapping[int, ProcessFacts]
    dumps: Mapping[int, Dump]
    at: float
    table: Table


def take(
    pids: Iterable[int],
    stacks_of: Iterable[int],
    targets: Mapping[int, Target],
    options: CaptureOptions,
    *,
    with_locals: Iterable[int] = (),
) -> Sample:
    """One sample. `stacks_of` are those of `pids` whose stacks are wanted, the most important ones first."""
    wanted = tuple(dict.fromkeys(stacks_of))[:MOST_STACKS]
    with ThreadPoolExecutor(1, "hangwatch-sample") as pool:
        at = time.monotonic()
        dumping = pool.submit(_dump, wanted, targets, options, frozenset(with_locals))
        table = Table.read(options.proc)
        facts = _facts(pids, table, options.proc)
        return Sample(facts, dumping.result(), at, table)


def _facts(pids: Iterable[int], table: Table, proc: Path) -> dict[int, ProcessFacts]:
    namespaces: dict[str, Mapping[str, Socket] | None] = {}
    counters = cache(tcp_counters)  # of this sample: the kernel tells of all connections at once
    return {
        pid: process_facts(pid, proc=proc, table=table, tcp=_tcp(pid, proc, namespaces), counters=counters)
        for pid in dict.fromkeys(pids)
    }


def _tcp(pid: int, proc: Path, namespaces: dict[str, Mapping[str, Socket] | None]) -> Mapping[str, Socket] | None:
    """The TCP table of a process's network, read once per network: it takes milliseconds."""
    name = sockets.network_namespace(pid, proc)
    if not name:
        return None
    if name not in namespaces:
        try:
            namespaces[name] = sockets.table(pid, proc)
        except OSError:
            namespaces[name] = None
    return namespaces[name]


def _dump(
    pids: tuple[int, ...], targets: Mapping[int, Target], options: CaptureOptions, with_locals: frozenset[int]
) -> dict[int, Dump]:
    dumps = py_spy.dump_all(
        pids, with_locals=with_locals, program=options.py_spy, timeout_s=options.stack_timeout_s, proc=options.proc
    )
    failed = [pid for pid, dump in dumps.items() if not dump.ok and pid in targets]
    if failed:
        with ThreadPoolExecutor(min(py_spy.CONCURRENCY, len(failed)), "hangwatch-faulthandler") as pool:
            answers = pool.map(lambda pid: _by_itself(targets[pid], options), failed)
        dumps.update({pid: _second_best(dumps[pid], answer) for pid, answer in zip(failed, answers, strict=True)})
    return dumps


def _by_itself(target: Target, options: CaptureOptions) -> Dump:
    """The stacks that a rank writes itself, without any right to trace it."""
    request, board = options.request_collectives, target.board_path
    ticker = None
    if request is not None:
        ticker = Asked(lambda: request(board, target.own_pid), lambda: options.taken_up(board))
    return ask_faulthandler(target.pid, target.run_dir, ticker=ticker, own_pid=target.own_pid, proc=options.proc)


def _second_best(refused: Dump, answer: Dump) -> Dump:
    """faulthandler's stacks with the reason why they are not py-spy's; without either, both reasons."""
    failure = f"{refused.failure}; " + ("taken by faulthandler instead" if answer.ok else answer.failure)
    return Dump(refused.pid, answer.stacks, failure, refused.took_s + answer.took_s)
