"""What the system knows of one process: its state, what it waits for, what it has used.

Source: /proc/PID. Facts that cannot be had (another user's process, a container without wchan, a process that
ends while it is read) are named in `ProcessFacts.unreadable` with the reason.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from hangwatch.model import OpenFile, ProcessFacts, Socket, ThreadFacts
from hangwatch.ranks.processes import IDLE_CPU_S
from hangwatch_agent.capture.proc import descriptors, sockets, system_calls
from hangwatch_agent.capture.proc.system_calls import SystemCall
from hangwatch_agent.capture.proc.tcp_counters import Counters, tcp_counters
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import PROC, Stat, Table
from hangwatch_agent.shared.redact import redact_command, redact_environment

T = TypeVar("T")

SETTINGS = frozenset(
    """
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK
    ROLE_WORLD_SIZE ROLE_NAME MASTER_ADDR MASTER_PORT OMP_NUM_THREADS MKL_NUM_THREADS CUDA_VISIBLE_DEVICES
    PYTHONHASHSEED CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING NVIDIA_VISIBLE_DEVICES PYTORCH_CUDA_ALLOC_CONF
    """.split()  # noqa: SIM905
)
SETTING_PREFIXES = (
    "TORCHELASTIC_", "PET_", "SLURM_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_RANK", "NCCL_", "GLOO_", "TORCH_NCCL_",
    "TORCH_GLOO_", "TORCH_DISTRIBUTED_", "TORCH_FR_", "TP_SOCKET_", "HANGWATCH_",
)  # fmt: skip
USUAL_STATES = "RSI"
MOST_THREADS = 128  # that are asked whether all of them wait
# What a wait is known by. A process that naps is seen awake now and then, which says less than its nap.
_OF_ITS_WAIT = (
    "state", "wait_channel", "system_call", "blocked_on", "waits_for", "sleeps_s", "times_out_s", "private_wait",
    "deadlocked",
)  # fmt: skip
# What TensorPipe (torch's RPC) and NCCL call threads that ask for messages again and again: each takes a processor.
POLLERS = ("TP_", "NCCL Progress")


def process_facts(
    pid: int,
    *,
    proc: Path = PROC,
    table: Table | None = None,
    tcp: Mapping[str, Socket] | None = None,
    counters: Callable[[], Mapping[str, Counters]] = tcp_counters,
) -> ProcessFacts:
    """Everything about a process that /proc tells. Never raises; a process that is gone has state "X".

    Args:
        pid: the process.
        proc: root of the proc file system.
        table: all processes, if they have been read already; children are taken from it.
        tcp: `sockets.table` of the process's network namespace, if it has been read already.
        counters: asks the kernel for the counters of all TCP connections, or remembers its answer for many processes.
    """
    stat = procfs.stat_of(pid, proc)
    if stat is None:
        return ProcessFacts(pid, "X")
    return _Look(pid, proc, stat).facts(table or Table.read(proc), tcp, counters)


def second_sample(first: ProcessFacts, second: ProcessFacts) -> ProcessFacts:
    """The second facts with what was used between the two, and of one that naps with the first's wait.

    Two processes have none.
    """
    if first.pid != second.pid or first.started_at != second.started_at:
        return second
    used = _difference(_without_polling(first), _without_polling(second))
    naps = first.state == "S" and "sleep" in (first.system_call or "")
    if second.state == "R" and naps and used is not None and used <= IDLE_CPU_S:
        second = dataclasses.replace(second, **{name: getattr(first, name) for name in _OF_ITS_WAIT})
    return dataclasses.replace(
        second,
        command=first.command if second.state == "D" else second.command,  # not read in that state
        environment=second.environment or first.environment,
        cpu_delta_s=used,
        io_delta_bytes=_difference(first.io_bytes, second.io_bytes),
        written_delta_bytes=_difference(first.written_bytes, second.written_bytes),
        received_delta_bytes=_difference(first.received_bytes, second.received_bytes)
        if first.blocked_on == second.blocked_on
        else None,
    )


def _without_polling(facts: ProcessFacts) -> float | None:
    return None if facts.cpu_s is None else facts.cpu_s - (facts.polling_s or 0.0)


N = TypeVar("N", int, float)


def _difference(first: N | None, second: N | None) -> N | None:
    return None if first is None or second is None else max(second - first, type(second)(0))


def distributed_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that concern distributed training and hangwatch, with secrets redacted."""
    chosen = {name: value for name, value in environment.items() if is_setting(name)}
    return redact_environment(dict(sorted(chosen.items())))


def is_setting(name: str) -> bool:
    """Whether an environment variable is one that hangwatch keeps."""
    return name in SETTINGS or name.startswith(SETTING_PREFIXES)


class _Look:
    """One look at one process, which remembers what it was refused."""

    def __init__(self, pid: int, proc: Path, stat: Stat) -> None:
        self.pid, self.proc, self.stat = pid, proc, stat
        self.folder = proc / str(pid)
        self.refused: list[str] = []

    def facts(
        self, table: Table, tcp: Mapping[str, Socket] | None, counters: Callable[[], Mapping[str, Counters]]
    ) -> ProcessFacts:
        pid, proc, stat = self.pid, self.proc, self.stat
        zombie = stat.state in "ZX"
        call = None if zombie else self._try("system call", self._call)
        fd = system_calls.descriptor(call, pid, proc) if call else None
        waits = call is not None and system_calls.waits_privately(call)
        io = self._try("io", self._io)
        values = ProcessFacts(
            pid=pid,
            state=stat.state,
            parent=stat.parent,
            started_at=procfs.started_at(stat, proc),
            command=redact_command(procfs.command_line(pid, proc)) or stat.name,
            cpu_s=stat.cpu_s,
            threads=stat.threads,
            resident_bytes=stat.resident_bytes,
            children=table.children(pid),
            exit_code=stat.exit_code,
            io_bytes=io[0] if io else None,
            written_bytes=io[1] if io else None,
        )
        if not zombie:  # nothing of the rest is left of a zombie
            threads = self._threads()
            values = dataclasses.replace(
                values,
                wait_channel=self._try("wait channel", self._wait_channel),
                system_call=call.name if call else None,
                blocked_on=self._blocked_on(call, fd) if call else None,
                received_bytes=self._try("received bytes", lambda: self._received(fd, counters)),
                waits_for=system_calls.awaited_child(call) if call else None,
                sleeps_s=self._try("sleep", lambda: system_calls.sleeps_for(call, pid, proc)) if call else None,
                times_out_s=self._try("timeout", lambda: system_calls.times_out_after(call, pid, proc))
                if call
                else None,
                has_alarm=bool(self._try("signals", lambda: procfs.handles(signal.SIGALRM, pid, proc))),
                private_wait=waits,
                deadlocked=waits and self._all_wait(),
                descriptors=self._try("descriptors", lambda: descriptors.count(pid, proc)),
                descriptor_limit=self._try("descriptor limit", lambda: descriptors.limit(pid, proc)),
                sockets=self._try("sockets", lambda: sockets.sockets_of(pid, proc, tables=tcp)) or (),
                standard_pipes=self._try("pipes", lambda: descriptors.standard_pipes(pid, proc)) or (),
                environment=self._try("environment", self._environment) or {},
                unusual_threads=self._unusual_threads(threads),
                polling_s=sum(thread.cpu_s for thread in threads if thread.name.startswith(POLLERS)),
            )
        if self.refused and procfs.stat_of(pid, proc) is None:
            return ProcessFacts(pid, "X", started_at=values.started_at, command=values.command)
        return dataclasses.replace(values, unreadable=tuple(self.refused))

    def _try(self, what: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except OSError as error:
            self.refused.append(f"{what}: {procfs.reason(error)}")
        except (ValueError, IndexError, KeyError) as error:
            self.refused.append(f"{what}: cannot be understood ({error})")
        return None

    def _call(self) -> SystemCall:
        return system_calls.current(self.pid, self.pid, self.proc)

    def _wait_channel(self) -> str:
        return wait_channel(self.folder / "wchan")

    def _io(self) -> tuple[int, int]:
        """Bytes read and written, bytes written."""
        read, written = procfs.io_bytes(self.pid, self.proc)
        return read + written, written

    def _environment(self) -> dict[str, str]:
        return distributed_settings(procfs.environment(self.pid, self.proc))

    def _blocked_on(self, call: SystemCall, fd: int | None) -> OpenFile | None:
        if fd is not None:
            return self._try("blocking descriptor", lambda: descriptors.open_file(self.pid, fd, self.proc))
        path = system_calls.path(call, self.pid, self.proc)
        return None if path is None else descriptors.named(self.pid, path, self.proc)

    def _received(self, fd: int | None, counters: Callable[[], Mapping[str, Counters]]) -> int | None:
        """Over the TCP connection of that descriptor. What `recv` reads is not among the bytes of /proc/PID/io."""
        inode = descriptors.socket_inode(self.pid, fd, self.proc) if fd is not None else None
        found = counters().get(inode) if inode is not None else None
        return found.received if found is not None else None

    def _unusual_threads(self, threads: list[Stat]) -> tuple[ThreadFacts, ...]:
        return tuple(self._thread(thread) for thread in threads if thread.state not in USUAL_STATES)

    def _all_wait(self) -> bool:
        """Every thread waits, without a timeout, for another one of this process; an unknown state counts as moving."""
        try:
            threads = self._thread_ids()
            calls = (system_calls.current(self.pid, thread, self.proc) for thread in threads[:MOST_THREADS])
            return len(threads) <= MOST_THREADS and all(system_calls.waits_privately(call) for call in calls)
        except (OSError, ValueError):
            return False

    def _thread_ids(self) -> list[int]:
        return sorted(int(path.name) for path in (self.folder / "task").iterdir())

    def _threads(self) -> list[Stat]:
        known = self._try("threads", self._thread_ids) or ()
        found = (procfs.stat_of(thread, self.folder / "task") for thread in known)
        return [stat for stat in found if stat is not None]

    def _thread(self, stat: Stat) -> ThreadFacts:
        folder = self.folder / "task" / str(stat.pid)
        return ThreadFacts(stat.pid, stat.name, stat.state, _channel_or_none(folder), self._thread_call(stat.pid))

    def _thread_call(self, thread: int) -> str | None:
        try:
            return system_calls.current(self.pid, thread, self.proc).name
        except (OSError, ValueError):
            return None


def wait_channel(path: Path) -> str:
    """The kernel function that a thread sleeps in, "" for none. Raises OSError.

    Without ptrace rights, and on kernels that hide symbols, the file says "0", which says nothing either.
    """
    text = procfs.read_text(path).strip()
    return "" if text == "0" else text


def _channel_or_none(folder: Path) -> str | None:
    try:
        return wait_channel(folder / "wchan")
    except OSError:
        return None
