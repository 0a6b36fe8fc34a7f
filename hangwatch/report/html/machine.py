"""What the machines say: loaders and their workers, processes, nodes, GPUs, and how the evidence was taken."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.model import CaptureNote, Incident, LoaderFacts, NodeFacts, ProcessEvidence, ProcessFacts
from hangwatch.report import words
from hangwatch.report.html.markup import ROWS, Child, Html, table, tag

STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "uninterruptible (D)",
    "T": "stopped (T)",
    "t": "traced (t)",
    "Z": "zombie (Z)",
    "X": "gone",
    "I": "idle",
}
UNUSUAL = ("D", "T", "t", "Z", "X")


def loaders(incident: Incident) -> Html:
    """One row for each loader of each rank; loaders that gave fewer batches than others stand out."""
    found = [(rank.rank, loader) for rank in incident.ranks for loader in rank.loader]
    most: dict[tuple[int, int], int] = {}
    for _, loader in found:
        key = (loader.index, loader.epoch)
        most[key] = max(most.get(key, 0), loader.drawn)
    head = ("rank", "loader", "epoch", "drawn", "of", "state", "data set", "sampler", "batch size", "workers", "line")
    rows = [_loader(rank, loader) for rank, loader in found]
    return table(head, rows, [loader.drawn < most[loader.index, loader.epoch] for _, loader in found])


def _loader(rank: int, loader: LoaderFacts) -> tuple[Child, ...]:
    sampler = loader.sampler + (f" ({loader.sampler_length})" if loader.sampler_length is not None else "")
    size = "" if loader.dataset_length is None else f" ({loader.dataset_length})"
    return (
        rank,
        loader.index,
        loader.epoch if loader.epoch >= 0 else None,
        loader.drawn,
        loader.length,
        _state(loader),
        loader.dataset + size,
        sampler,
        loader.batch_size,
        loader.num_workers,
        words.place(loader.where) if loader.where else None,
    )


def _state(loader: LoaderFacts) -> str:
    if loader.inside_next:
        return "waits for a batch"
    return "exhausted" if loader.exhausted else "left" if loader.left else "in use" if loader.epoch >= 0 else "not used"


def workers(incident: Incident) -> Html:
    """Loader workers, one a row; those that are stopped, dead or at work on a sample stand out."""
    found = [(rank.rank, worker) for rank in incident.ranks for worker in rank.workers]
    rows = [
        (rank, worker.worker, worker.facts.pid, _process_state(worker.facts), worker.sample, _innermost(worker))
        for rank, worker in found
    ]
    head = ("rank", "worker", "pid", "state", "holds", "is in")
    return table(head, rows, [worker.facts.state in UNUSUAL for _, worker in found])


def _innermost(process: ProcessEvidence) -> Html | None:
    frame = next((stack.frames[0] for stack in process.stacks if stack.main and stack.frames), None)
    return tag("code", f"{words.place(frame)} {frame.function}") if frame else None


def processes(incident: Incident) -> Html:
    """Ranks, launchers and others; processes in an unusual state stand out."""
    found = list(_processes(incident))
    head = (
        "process",
        "pid",
        "state",
        "CPU",
        "in 1 s",
        "input/output in 1 s",
        "memory",
        "kernel",
        "blocked on",
        "files",
    )
    rows = [(name, *_process(facts)) for name, facts in found]
    return table(head, rows, [facts.state in UNUSUAL for _, facts in found])


def _processes(incident: Incident) -> Iterator[tuple[str, ProcessFacts]]:
    yield from ((f"rank {rank.rank}", rank.process) for rank in incident.ranks[:ROWS] if rank.process)
    for process in (*incident.launchers, *incident.others, *(one for r in incident.ranks for one in r.children)):
        yield process.role if process.rank is None else f"{process.role} of rank {process.rank}", process.facts


def _process(facts: ProcessFacts) -> tuple[Child, ...]:
    kernel = " in ".join(part for part in (facts.system_call, facts.wait_channel) if part)
    limit = "" if facts.descriptor_limit is None else f" of {facts.descriptor_limit}"
    blocked = facts.blocked_on
    return (
        facts.pid,
        _process_state(facts),
        None if facts.cpu_s is None else words.duration(facts.cpu_s),
        None if facts.cpu_delta_s is None else f"{facts.cpu_delta_s:.2f} s",
        None if facts.io_delta_bytes is None else words.size(facts.io_delta_bytes),
        None if facts.resident_bytes is None else words.size(facts.resident_bytes),
        kernel,
        f"{blocked.path}{f' ({blocked.filesystem})' if blocked.filesystem else ''}" if blocked else None,
        None if facts.descriptors is None else f"{facts.descriptors}{limit}",
    )


def _process_state(facts: ProcessFacts) -> str:
    code = facts.exit_code
    ended = "" if code is None else f", {words.ended(code)}"
    return STATES.get(facts.state, facts.state) + ended


def nodes(incident: Incident) -> Html:
    """One row a node."""
    head = ("node", "ranks", "shared memory free", "memory used", "killed for memory", "silent for", "clock ahead")
    return table(head, [_node(node) for node in incident.nodes])


def _node(node: NodeFacts) -> tuple[Child, ...]:
    return (
        node.host,
        words.ranges(node.ranks),
        _share(node.shm_free, node.shm_total),
        _share(node.memory_used, node.memory_limit),
        node.oom_kills,
        words.duration(node.silent_s) if node.silent_s else None,
        f"{node.clock_offset_s:+.3f} s" if node.clock_offset_s else None,
    )


def _share(part: int | None, whole: int | None) -> str:
    if part is None:
        return ""
    return words.size(part) + (f" of {words.size(whole)}" if whole is not None else "")


def gpus(incident: Incident) -> Html:
    """One row a GPU; GPUs with errors stand out."""
    found = [(node.host, gpu) for node in incident.nodes for gpu in node.gpus]
    rows = [
        (
            host,
            gpu.index,
            gpu.name,
            _percent(gpu.utilization_percent),
            None if gpu.power_w is None else f"{gpu.power_w:.0f} W",
            None if gpu.power_limit_w is None else f"{gpu.power_limit_w:.0f} W",
            _share(gpu.memory_used, gpu.memory_total),
            None if gpu.temperature_c is None else f"{gpu.temperature_c} °C",
            "; ".join(gpu.errors),
        )
        for host, gpu in found
    ]
    head = ("node", "GPU", "model", "busy", "power", "limit", "memory", "temperature", "errors")
    return table(head, rows, [bool(gpu.errors) for _, gpu in found])


def _percent(value: int | None) -> str:
    return "" if value is None else f"{value} %"


def gpu_memory(incident: Incident) -> Html:
    """Which process holds memory on which GPU; memory on a GPU that is not the rank's own stands out."""
    owners = {(rank.host, rank.pid): rank for rank in incident.ranks}
    rows: list[tuple[Child, ...]] = []
    marked: list[bool] = []
    for node in incident.nodes:
        for gpu in node.gpus:
            for pid, held in sorted(gpu.processes.items()):
                owner = owners.get((node.host, pid))
                rows.append((node.host, gpu.index, f"rank {owner.rank}" if owner else "", pid, words.size(held)))
                marked.append(bool(owner and owner.gpu is not None and owner.gpu != gpu.index))
    return table(("node", "GPU", "process", "pid", "GPU memory"), rows, marked)


def notes(incident: Incident) -> Html:
    """What was tried, and what could not be had and why; failures first."""
    found = sorted(incident.capture, key=lambda note: note.ok)
    return table(
        ("source", "rank", "had", "remark", "took"), [_note(note) for note in found], [not n.ok for n in found]
    )


def _note(note: CaptureNote) -> tuple[Child, ...]:
    took = f"{note.took_s:.2f} s" if note.took_s else None
    return note.source, note.rank, "yes" if note.ok else "no", note.detail, took
