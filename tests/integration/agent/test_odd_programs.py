"""Programs that do unusual things to Python: what they print and how they end is the same plain and watched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ports import free_port

RUN = [sys.executable, "-m", "hangwatch", "run", "--"]
TRAINING = """
import os, signal, sys, threading, time
import torch, torch.distributed as dist
from torch.utils.data import DataLoader
torch.set_num_threads(1)
torch.manual_seed(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
def train(workers=0):
    "Trains."
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(torch.arange(32.0).reshape(-1, 4), 2, num_workers=workers):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    print("loss", model(torch.ones(1, 4)).item(), flush=True)
def end(code=0):
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(code)  # gloo's threads may abort a process that ends by itself, with and without us
"""


@dataclass(frozen=True)
class Odd:
    """A program that begins with TRAINING, Python's options, and what is added to the environment."""

    code: str
    options: tuple[str, ...] = ()
    environment: str = ""


QUICK = {
    "signals of its own": Odd("""
got = []
numbers = signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTERM, signal.SIGWINCH
for number in numbers: signal.signal(number, lambda n, f: got.append(int(n)))
train()
for number in numbers: os.kill(os.getpid(), number)
time.sleep(0.1)
print(sorted(got), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGHUP))
end()"""),
    "forks without exec": Odd("""
train()
for code in (5, 6):
    if (child := os.fork()) == 0:
        print(len(threading.enumerate()), [float(x.sum()) for x in DataLoader(torch.ones(4, 1), 2)], flush=True)
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
end()"""),
    "asks faulthandler": Odd("""
import faulthandler
print(faulthandler.is_enabled()); train(); print(faulthandler.is_enabled(), faulthandler.disable())
end()"""),
}
ODD = {
    "traces itself": Odd("""
calls = []
sys.settrace(lambda frame, event, argument: calls.append(event))
train()
print(sys.gettrace() is not None, len(calls) > 0)
sys.settrace(None)
end()"""),
    "replaces threads": Odd("""
class Event(threading.Event): pass
real, made = threading.Thread, []
class Thread(real):
    def start(self):
        made.append(self.name)
        super().start()
threading.Event, threading.Thread = Event, Thread
train(workers=1)
print(sorted(name for name in made if not name.startswith("hangwatch-")))
end()"""),
    "a thread with our name": Odd("""
other = threading.Thread(target=time.sleep, args=(0.5,), name="hangwatch-ticker")
other.start(); train(); other.join()
print(other.name, other.is_alive())
end()"""),
    "joins all threads": Odd("""
train(workers=1); time.sleep(1.5)
print(threading.active_count(), [thread.name for thread in threading.enumerate()])
for thread in threading.enumerate():
    if thread is not threading.main_thread(): thread.join(20); print(thread.name, thread.is_alive())
end()"""),
    "another user at its end": Odd("train(); end = print; os.setuid(65534); print(os.getuid())"),
    "frozen subclass": Odd("""
class Frozen(torch.nn.parallel.DistributedDataParallel):
    def __setattr__(self, name, value):
        if "hang" in name: raise AttributeError(name)
        super().__setattr__(name, value)
model = Frozen(torch.nn.Linear(4, 1))
for _ in range(3): model(torch.ones(2, 4)).sum().backward()
print([name for name in vars(model) if "hang" in name])
end()"""),
    "pickled loader": Odd("""
import pickle
class Mine(DataLoader):
    def __iter__(self): return iter([torch.ones(1), torch.ones(2)])
print([len(x) for x in pickle.loads(pickle.dumps(Mine(torch.ones(4, 4))))])
loader = pickle.loads(pickle.dumps(DataLoader(torch.ones(4, 4), 2)))
print(sorted(vars(loader)), [float(x.sum()) for x in loader], len(loader))
end()"""),
    "exits in atexit": Odd("""
import atexit
atexit.register(lambda: sys.exit(9))
atexit.register(lambda: print("at exit", flush=True))
train(); dist.destroy_process_group()"""),
    "warnings are errors": Odd("train(workers=1); end()", ("-W", "error")),
    "without docstrings": Odd("train(); print(train.__doc__, __debug__); end()", ("-OO",)),
    "isolated": Odd("train(); print(sys.flags.isolated); end()", ("-I",)),
    "safe path": Odd("train(); print(sys.flags.safe_path, '' in sys.path); end()", ("-P",)),
    "import times": Odd("train(); end()", ("-X", "importtime")),
    "hash seed": Odd("train(); print(hash('x')); end()", (), "PYTHONHASHSEED=7"),
    "no bytecode": Odd("train(); print(sys.dont_write_bytecode); end()", (), "PYTHONDONTWRITEBYTECODE=1"),
}


def play(folder: Path, odd: Odd, *before: str) -> tuple[int, str, list[str]]:
    """The exit code, what was printed, and standard error without numbers, timings and hangwatch's own lines."""
    folder.mkdir()
    (folder / "program.py").write_text(TRAINING + odd.code)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HANGWATCH_", "PYTHON", "COV"))}
    clean |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    clean |= {"MASTER_PORT": str(free_port()), "HANGWATCH_RUN_DIR": str(folder / "run"), "OMP_NUM_THREADS": "1"}
    name, _, value = odd.environment.partition("=")
    clean |= {name: value} if name else {}
    command = [*before, sys.executable, *odd.options, "program.py"]
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=250)
    said = done.stderr.replace(str(folder), "FOLDER")
    lines = [line for line in said.splitlines() if not line.startswith(("hangwatch: ", "import time:"))]
    return done.returncode, done.stdout, [re.sub(r"0x[0-9a-f]+|\d+", "N", line) for line in lines]


@pytest.mark.parametrize("odd", QUICK.values(), ids=QUICK)
def test_an_odd_program_is_the_same_under_watch(tmp_path: Path, odd: Odd) -> None:
    plain, watched = play(tmp_path / "plain", odd), play(tmp_path / "watched", odd, *RUN)
    assert plain[0] == 0, plain
    assert watched == plain


@pytest.mark.gallery
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_very_odd_program_is_the_same_under_watch(tmp_path: Path, odd: Odd) -> None:
    plain, watched = play(tmp_path / "plain", odd), play(tmp_path / "watched", odd, *RUN)
    assert watched == plain
