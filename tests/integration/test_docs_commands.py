"""The commands of README and docs/ that can be run here are run, in one folder, one after the other, as a reader would.

One job that hangs is started, by the README's first command, and its report is what the other commands are about. What
is not run stands in NOT_RUN, with the reason; tests/unit/test_docs_commands.py holds that it is understood at least.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangwatch.commands.trial import Trial
from hangwatch.gallery import HERE
from tests import dumps, needs
from tests.integration.conftest import leave_unmeasured
from tests.ports import free_port
from tests.shell_examples import ROOT, examples

RUN = "hangwatch run -- torchrun --nproc-per-node 8 train.py"
DASHBOARD = "hangwatch dashboard"
READY = "curl --fail --silent http://127.0.0.1:8470/readyz"
BACKUP = """python3 -c "import sqlite3; sqlite3.connect('dashboard.db').execute('VACUUM INTO ?', ['backup.db'])\""""
IN_FOLDER = {  # with what each must print
    "hangwatch report": "HUNG, proven",
    "hangwatch report --markdown": "HUNG, proven",
    "hangwatch report --verbose": "seen ",
    "hangwatch report --diff": "epoch 0",
    "hangwatch report --html report.html": "wrote report.html",
    "hangwatch report --summary -": '"uneven-steps"',
    "hangwatch analyze hangwatch-reports/* ~/.cache/torch/comm_lib_trace_rank_*": "ran out of data",
    "hangwatch doctor": "py-spy",
    "hangwatch demo --list | grep nccl_": "nccl_uneven_steps.py",
    "hangwatch bench --world 1 --seed 35": "seed",
    "ps -C python -o pid,lstart,args": "STARTED",
    "env | grep -E '^(NCCL|TORCH_NCCL|GLOO)_'": "NCCL_DEBUG=INFO",
}
BESIDE_DUMPS = {  # where a job on NCCL has hung and left its flight recorders' dumps
    "hangwatch analyze ~/.cache/torch/ slurm-1234.out": "rank 2",
    "hangwatch analyze ~/.cache/torch/comm_lib_trace_rank_* job.log": "rank 2",
}
BESIDE_A_LOADER = {"hangwatch doctor loader train.py:make_loader --ranks 4": "the ranks divide 101 samples"}
IN_CHECKOUT = {
    "promtool check rules docker/prometheus/alerts.yml": "SUCCESS",
    "promtool test rules docker/prometheus/alerts.test.yml": "SUCCESS",
    "make demo": "bin/hangwatch demo",
    "make demo DEMO_ARGS=--no-wait": "bin/hangwatch demo --no-wait",
    "make bench": "bin/hangwatch bench",
    "make gallery": "-m gallery",
    "make gpu": "-m scripts.gpu",
    "make env page": "",  # nothing is left to do where this test runs
    "make test": "-m pytest",
    "make lint types site": "bin/lint-imports",
    "make dist": "-m scripts.check_dist",
    "make frameworks": "-m pytest -m gallery tests/frameworks",
    "make harmless": "-m tests.harmless --write",
    "make matrix": "-m scripts.matrix",
    "make reports": "-m scripts.play_reports",
}
NOT_RUN = {  # by what the line begins with
    r"\.venv/bin/pytest|\.venv/bin/python -m pytest|\.ci/run": "this is pytest",
    r"\.venv/bin/pre-commit install": "changes the checkout",
    "hangwatch run .*(--nnodes|--dashboard|3:4)": "needs several machines",
    "hangwatch doctor (-- |--hosts )": "needs several machines; tests/integration/doctor runs it on one",
    "hangwatch dashboard --host|export HANGWATCH_": "opens a port to others; tests/integration/dashboard starts it so",
    "hangwatch dashboard --database|pg_dump": "needs a PostgreSQL server; tests/integration/dashboard has one",
    "HANGWATCH_NOTIFY=": "needs an address to tell; tests/integration/dashboard/test_notify.py has a stand-in",
    "hangwatch bench( --accuracy.*)?$|hangwatch bench --world 100000": "takes hours; test_bench.py runs less of it",
    "hangwatch demo nccl-": "the gallery runs it: test_standin.py",
    "pip install": "`make dist` installs it in clean environments",
    "docker ": "needs a container engine",
    "nvidia-smi|NCCL_|CUDA_": "needs a GPU",
    "srun |#SBATCH ": "needs a Slurm cluster",
    "torchrun |export |ulimit ": "a reader's own job, or its environment",
    "ps -fp |kill |rm ": "about a reader's own processes and files",
}


def reason(line: str) -> str | None:
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, line)), None)


def test_every_command_is_run_or_has_a_reason_why_not() -> None:
    lines = {example.line for example in examples()}
    run = {RUN, DASHBOARD, READY, BACKUP, *IN_FOLDER, *BESIDE_DUMPS, *BESIDE_A_LOADER, *IN_CHECKOUT}
    assert [line for line in lines - run if reason(line) is None] == []
    assert run - lines == set()


def test_every_reason_is_needed() -> None:
    lines = [example.line for example in examples()]
    assert [pattern for pattern in NOT_RUN if not any(re.match(pattern, line) for line in lines)] == []


def environment(folder: Path) -> dict[str, str]:
    """Ours, with hangwatch, torchrun and python3 of this interpreter in front, and a home of its own."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(folder), "NCCL_DEBUG": "INFO"}


def shell(line: str, folder: Path, home: Path) -> str:
    """What a line prints; it must succeed."""
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's folder, in which a job has hung: the README's command, with two ranks in place of eight."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "train.py").write_text((HERE / "uneven_steps.py").read_text())
    words = RUN.replace("-node 8", "-node 2").replace("train.py", f"{folder}/train.py").partition(" -- ")[2].split()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", *words[1:]]
    with pytest.MonkeyPatch.context() as patch:
        leave_unmeasured(patch)  # a rank whose coverage is saved just then seems to work, and no hang of it is proven
        with Trial(torchrun, folder / "hangwatch-reports", environment=environment(folder)) as trial:
            assert trial.incident(200.0) is not None
            deadline = time.monotonic() + 60
            while not list(trial.report_dir.glob("incident-*.html")) and time.monotonic() < deadline:
                time.sleep(0.1)  # it comes after the JSON
    return folder


@pytest.mark.parametrize(("line", "said"), IN_FOLDER.items(), ids=IN_FOLDER)
def test_it_works_in_a_readers_folder(line: str, said: str, folder: Path) -> None:
    line = line.replace(" ~/.cache/torch/comm_lib_trace_rank_*", "")  # which only NCCL leaves
    assert said in shell(line, folder, folder)


@pytest.mark.parametrize(("line", "said"), BESIDE_DUMPS.items(), ids=BESIDE_DUMPS)
def test_it_works_on_what_nccl_leaves(line: str, said: str, tmp_path: Path) -> None:
    programs = dumps.alike(3, dumps.loop(20, dumps.Op("all_reduce", 71)), rank2=[dumps.Op("all_reduce", 71)] * 9)
    for dump in dumps.Job(3, programs, timed=True).write(tmp_path / ".cache" / "torch"):
        dump.rename(dump.with_name(dump.name.replace("nccl_", "comm_lib_")))
    for name in ("slurm-1234.out", "job.log"):
        (tmp_path / name).write_text("[rank0]: step 9 loss 0.3182\n")
    assert said in shell(line, tmp_path, tmp_path)


@pytest.mark.parametrize(("line", "said"), BESIDE_A_LOADER.items(), ids=BESIDE_A_LOADER)
def test_it_works_on_a_readers_loader(line: str, said: str, tmp_path: Path) -> None:
    loaders = (Path(__file__).parent / "doctor" / "loaders.py").read_text()
    (tmp_path / "train.py").write_text(f"{loaders}\n\nmake_loader = good\n")
    assert said in shell(line, tmp_path, tmp_path)


@pytest.mark.parametrize(("line", "said"), IN_CHECKOUT.items(), ids=IN_CHECKOUT)
def test_it_works_in_a_checkout(line: str, said: str, tmp_path: Path) -> None:
    program = line.split()[0]
    needs.program(program)
    line = line.replace("make ", "make --dry-run ")  # what it would run: the test itself runs in that environment
    assert said in shell(line, ROOT, tmp_path)


def test_the_dashboard_starts_is_ready_and_is_backed_up(tmp_path: Path) -> None:
    needs.program("curl")
    port = str(free_port())
    words = [sys.executable, "-m", *DASHBOARD.split(), "--port", port, "--database", "dashboard.db"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL) as service:
        try:
            ready = READY.replace("8470", port).replace("curl ", "curl --retry 60 --retry-delay 1 --retry-connrefused ")
            shell(ready, tmp_path, tmp_path)
            shell(BACKUP, tmp_path, tmp_path)
        finally:
            service.terminate()
    assert (tmp_path / "backup.db").read_bytes().startswith(b"SQLite format 3")
