"""What torch itself says on the same scripts in the same time: as it is, with its debug mode, and by its analyser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hangwatch.commands.benchmark.gallery import Play
from hangwatch.commands.benchmark.results import PeerRun
from hangwatch.gallery import command

DEFAULT, DETAIL, ANALYSER = "torch", "TORCH_DISTRIBUTED_DEBUG=DETAIL", "torchfrtrace"
PEERS = (DEFAULT, DETAIL, ANALYSER)
ANALYSIS = "torch.distributed.flight_recorder.fr_trace"

# torchrun's summary tells which process it saw fail first; that is its answer, and the other ranks in it are not.
_ROOT_CAUSE = re.compile(r"Root Cause.*?\brank\s*:\s*(\d+)", re.DOTALL)
_ERROR = re.compile(r"error|signal|SIG[A-Z]{3}|exception|mismatch|terminat|abort|culprit|missing ranks", re.IGNORECASE)
_RANK = re.compile(r"\branks?\s*[:=#\[]?\s*\[?(\d+)", re.IGNORECASE)
CRASH = "all ranks die by SIGSEGV in the constructor of DDP, before the first step"
_NOISE = ("NOT been destroyed", "OMP_NUM_THREADS", "sending signal SIGTERM", "Sending process")

# Torch dumps by itself only when NCCL times out. So that its analyser has something to read, every rank writes what
# `torch.distributed` would write, when the time is up.
_DUMPER = """
import os, sys, threading, time
def dump():
    time.sleep(max(0.0, {at} - time.time()))
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_initialized():
        data = torch._C._distributed_c10d._dump_fr_trace()
        with open(os.path.join({folder!r}, "rank_" + str(torch.distributed.get_rank())), "wb") as file:
            file.write(data)
threading.Thread(target=dump, daemon=True).start()
"""


def ask(what: Play, peer: str, seconds: float) -> PeerRun:
    """Run a case without hangwatch for `seconds`, and see whether `peer` names the culprit."""
    case = what.case
    with tempfile.TemporaryDirectory(prefix="hangwatch-bench-") as name:
        folder = Path(name)
        output = _run(what, peer, folder, seconds)
        if peer == ANALYSER:
            output = _analysed(folder)
    named, said = reading(output)
    if peer == DETAIL and "SIGSEGV" in output:
        named, said = (), CRASH
    return PeerRun(case.name, case.cause, peer, seconds, case.culprits(what.culprit or 0, case.ranks), named, said)


def reading(output: str) -> tuple[tuple[int, ...], str]:
    """The ranks that an output points at, and its last line that looks like an error."""
    lines = [line for line in output.splitlines() if _ERROR.search(line) and not any(n in line for n in _NOISE)]
    said = lines[-1].strip()[:200] if lines else ""
    if root := _ROOT_CAUSE.search(output):
        return (int(root[1]),), said
    return tuple(sorted({int(number) for line in lines for number in _RANK.findall(line)})), said


def _run(what: Play, peer: str, folder: Path, seconds: float) -> str:
    from hangwatch_agent.watchdog.abort import end_below

    log = folder / "output"
    with log.open("wb") as file:
        environment = _environment(peer, folder, time.time() + seconds - 2.0)
        words = command(what.case, culprit=what.culprit)
        process = subprocess.Popen(words, stdout=file, stderr=file, env=environment)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            end_below(process.pid, 0.0)
            process.wait()
    return log.read_text(errors="replace")


def _environment(peer: str, folder: Path, dump_at: float) -> Mapping[str, str]:
    if peer == DETAIL:
        return {**os.environ, "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    if peer == DEFAULT:
        return os.environ
    site = folder / "site"
    site.mkdir()
    (folder / "dumps").mkdir()
    (site / "sitecustomize.py").write_text(_DUMPER.format(at=dump_at, folder=str(folder / "dumps")))
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}


def _analysed(folder: Path) -> str:
    dumps = folder / "dumps"
    if not any(dumps.iterdir()):
        return "error: no rank could be made to dump"
    words: Sequence[str] = (sys.executable, "-m", ANALYSIS, str(dumps), "--prefix", "rank_")
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "error: it did not end within 60 s"
    return done.stdout + done.stderr
