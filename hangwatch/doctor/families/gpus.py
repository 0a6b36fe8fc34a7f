"""Each rank's GPU: usable, its own, empty, healthy; and what stands between GPUs and between hosts."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.doctor.families.telling import between_hosts, differing, fail, groups, named, ok, skip, stage, warn
from hangwatch.doctor.model import Check, Job, RankFacts
from hangwatch.model import GpuFacts
from hangwatch.report.words import size
from hangwatch.words import plural

FAMILY = "gpus"
LEFT_OVER = 512 << 20  # bytes that another process holds; a driver's own use is less


def checks(job: Job) -> Iterator[Check]:
    stuck = [each for each in job.ranks if (one := stage(each, "nvml") or stage(each, "gpus")) and one.problem]
    unsure = [each for each in job.ranks if "no answer" in each.gpu_note or "not answered" in each.gpu_note]
    if late := stuck + unsure:
        found = f"the NVIDIA driver of {', '.join(sorted({each.host for each in late}))} does not answer"
        advice = 'see dmesg for Xid and "GPU has fallen off the bus"; the host needs a reset'
        yield fail(FAMILY, "driver", found, advice, [each.rank for each in late])
    known = [each for each in job.ranks if each.gpus]
    if not known:
        if not late and job.ranks:
            yield skip(FAMILY, "GPUs", next((each.gpu_note for each in job.ranks if each.gpu_note), "none"))
        return
    for found_by in (_kinds, _usable, _shared, _errors, _left_over, _peers, _fabric):
        yield from found_by(job, known)


def _kinds(job: Job, known: list[RankFacts]) -> Iterator[Check]:
    kinds = groups(known, lambda each: f"{len(each.gpus)} x {each.gpus[0].name}")
    lacking = [each.rank for each in job.ranks if not each.gpus]
    if lacking:
        yield fail(
            FAMILY,
            "GPUs",
            f"{named(lacking)} see no GPU, others do",
            "see the container's --gpus and the driver",
            lacking,
        )
    elif len(kinds) > 1:
        yield warn(FAMILY, "GPUs", f"hosts differ: {differing(kinds)}", "the slowest GPU sets the pace")
    else:
        yield ok(FAMILY, "GPUs", f"{next(iter(kinds))} on each host")


def _usable(job: Job, known: list[RankFacts]) -> Iterator[Check]:
    broken = [each for each in known if _problem(each)]
    for reason, ranks in list(groups(broken, _problem).items())[:4]:
        advice = "see CUDA_VISIBLE_DEVICES, the driver's version and nvidia-smi on that host"
        yield fail(FAMILY, "CUDA", f"{named(ranks)}: {reason}", advice, ranks)
    if not broken and all(each.gpu_used for each in known):
        yield ok(FAMILY, "CUDA", "every rank computes on its GPU")


def _problem(rank: RankFacts) -> str:
    one = stage(rank, "cuda")
    return rank.gpu_problem or (one.problem if one is not None else "")


def _shared(job: Job, known: list[RankFacts]) -> Iterator[Check]:
    used = groups([each for each in known if each.gpu_used], lambda each: (each.host, each.gpu_used))
    for (host, _), ranks in ((key, ranks) for key, ranks in used.items() if isinstance(key, tuple)):
        if len(ranks) > 1:
            found = f"{named(ranks)} on {host} use the same GPU"
            advice = 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything else; NCCL refuses this'
            yield fail(FAMILY, "own GPU", found, advice, ranks)


def _errors(job: Job, known: list[RankFacts]) -> Iterator[Check]:
    for host, gpu in _each_gpu(job):
        if gpu.errors:
            found = f"GPU {gpu.index} of {host}: {', '.join(gpu.errors[:4])}"
            yield fail(FAMILY, "errors", found, "take the GPU out of service: nvidia-smi -q -d ECC,ROW_REMAPPER; dmesg")


def _left_over(job: Job, known: list[RankFacts]) -> Iterator[Check]:
    ours = {(each.host, str(each.pid)) for each in job.ranks}
    commands = {(each.host, pid): command for each in known for pid, command in each.gpu_strangers.items()}
    for host, gpu in _each_gpu(job):
        held = {
            p: n
            for p, n in gpu.processes.items()
            if n > LEFT_OVER and (host, str(p)) not in ours and not _is_ours(commands.get((host, str(p)), ""))
        }
        if held:
            pid, most = max(held.items(), key=lambda each: each[1])
            command = commands.get((host, str(pid))) or "a process that cannot be seen from here"
            found = f"GPU {gpu.index} of {host}: pid {pid} holds {size(most)} ({command})"
            yield warn(FAMILY, "memory in use", found, f"left of an earlier job? on {host}: kill {pid}")
        elif (
            gpu.memory_used is not None
            and gpu.memory_total
            and not gpu.processes
            and gpu.memory_used > gpu.memory_total // 4
        ):
            used = f"{size(gpu.memory_used)} of {size(gpu.memory_total)}"
            found = f"GPU {gpu.index} of {host}: {used} are in use by processes that cannot be seen"
            yield warn(FAMILY, "memory in use", found, "look outside this container: nvidia-smi, fuser -v /dev/nvidia*")


def _is_ours(command: str) -> bool:
    return "hangwatch_agent.doctor" in command


def _each_gpu(job: Job) -> Iterator[tuple[str, GpuFacts]]:
    for host, ranks in job.by_host.items():
        for gpu in max((each.gpus for each in ranks), key=len, default=()):
            yield host, gpu


def _peers(job: Job, known: list[RankFacts]) -> Iterator[Check]:
    for host, ranks in job.by_host.items():
        if pairs := ranks[0].fabric.no_peer_access:
            found = f"{plural(len(pairs), 'pair')} of GPUs of {host} cannot read each other's memory: {pairs[0]}"
            yield warn(
                FAMILY, "peer access", found, "NCCL goes through host memory; set NCCL_P2P_DISABLE=1 where it hangs"
            )
            return


def _fabric(job: Job, known: list[RankFacts]) -> Iterator[Check]:
    for host, ranks in job.by_host.items():
        fabric = ranks[0].fabric
        if fabric.acs_bridges and len(ranks[0].gpus) > 1:
            iommu = " and the IOMMU is on" if fabric.iommu else ""
            found = (
                f"{host}: PCI ACS redirects peer-to-peer traffic at {plural(len(fabric.acs_bridges), 'bridge')}{iommu}"
            )
            advice = "NCCL may hang or crawl: switch ACS off (BIOS, or setpci on the bridges), and iommu=pt"
            yield warn(FAMILY, "ACS", found, advice, [each.rank for each in ranks], fabric.acs_bridges[:16])
            break
    yield from _ports(known)
    if between_hosts(known):
        yield from _gid(known)


def _ports(known: list[RankFacts]) -> Iterator[Check]:
    counts = groups(known, lambda each: sum(port.endswith("ACTIVE") for port in each.fabric.ports))
    down = [f"{each.host}: {port}" for each in known for port in each.fabric.ports if not port.endswith("ACTIVE")]
    if len(counts) > 1:
        found = f"the number of active InfiniBand or RoCE ports differs: {differing(counts)}"
        yield warn(FAMILY, "ports", found, "see ibstat on the hosts with fewer", details=sorted(set(down))[:16])


def _gid(known: list[RankFacts]) -> Iterator[Check]:
    """A RoCE address must be at the index that NCCL is told, on every host."""
    for each in known:
        index = each.environment.get("NCCL_IB_GID_INDEX")
        roce = any(" Ethernet " in port for port in each.fabric.ports)
        if index is None or not roce:
            continue
        at = [gid for gid in each.fabric.gids if gid.split()[1] == index]
        if not at or not any("v2" in gid for gid in at):
            what = f"is {at[0].split(' ', 2)[2]}" if at else "is empty"
            found = f"NCCL_IB_GID_INDEX={index}, which {what} on {each.host}"
            advice = "use the index of a RoCE v2 address that all hosts have, or leave it out: show_gids"
            yield fail(FAMILY, "RoCE GID", found, advice, [each.rank], each.fabric.gids[:16])
            return
