"""Runs the matrix: one virtual environment after the other, below build/matrix. See `--help`."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hangwatch.gallery import CASES, Case
from hangwatch.model import Status
from hangwatch.report import files
from scripts.matrix.results import HEALTHY, Entry, Said, put

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "matrix"
OLDEST = (2, 4)
MINORS = (14, 13, 12, 11)
CORE = ("uneven-steps", "skipped-backward-nan", "rank-frozen", "rank-killed")
LONGEST = 1800.0  # seconds for an installation; the demo has a limit of its own
RECORDER = "import torch; print(hasattr(torch._C._distributed_c10d, '_dump_fr_trace_json'))"
ALARMS = (Status.HUNG, Status.LINGERING, Status.FAILED)


class CommandError(Exception):
    """A command failed; the last line that it printed."""


def main(argv: list[str]) -> int:
    arguments = _arguments(argv)
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    _run(sys.executable, "-m", "build", "--wheel", "--outdir", BUILD, ROOT)
    (wheel,) = BUILD.glob("*.whl")
    bad = 0
    for python, torch in _wanted(arguments):
        entry = _tried(python, torch, wheel, keep=arguments.keep)
        put(entry)
        wrong = [name for name, said in (entry.said or {}).items() if not said.right]
        bad += bool(entry.error or wrong)
        print(f"torch {entry.torch}, Python {entry.python}: {entry.error or wrong or 'all right'}", flush=True)
    return min(bad, 1)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make matrix", description=__doc__)
    parser.add_argument("--torch", action="append", metavar="VERSION", help="only this one; may be repeated")
    parser.add_argument("--python", action="append", metavar="3.N", help="only this one; may be repeated")
    parser.add_argument("--keep", action="store_true", help="leave the virtual environments (5 GB each)")
    return parser.parse_args(argv)


def _wanted(arguments: argparse.Namespace) -> Iterator[tuple[Path, str]]:
    """The newest torch on each Python, and each other torch on the newest Python for which there is one."""
    pythons = dict(_pythons(arguments.python))
    taken: set[str] = set()
    for name, python in pythons.items():
        offered = [version for version in _versions(python) if not arguments.torch or version in arguments.torch]
        for position, version in enumerate(offered):
            if arguments.python or position == 0 or version not in taken:
                taken.add(version)
                yield python, version
        if not offered:
            print(f"Python {name}: no such torch can be had", flush=True)


def _pythons(only: list[str] | None) -> Iterator[tuple[str, Path]]:
    """The interpreters that there are, newest first: on PATH, and those of pyenv."""
    for name in (f"3.{minor}" for minor in MINORS):
        kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{name}.*/bin/python3"), reverse=True)
        found = [str(python) for python in (shutil.which(f"python{name}"), *kept) if python and _runs(python)]
        if not only or name in only:
            if found:
                yield name, Path(found[0])
            else:
                print(f"Python {name}: not on this machine", flush=True)


def _runs(python: str | Path) -> bool:
    """Whether it is more than a shim of pyenv, which stands for no version."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def _versions(python: Path) -> list[str]:
    """The last release of each minor version of torch that pip offers for this Python, newest first."""
    said = _run(python, "-m", "pip", "index", "versions", "torch")
    listed = re.findall(r"\d+\.\d+\.\d+(?=,|\s|$)", said.partition("Available versions:")[2])
    newest: dict[tuple[int, int], str] = {}
    for version in listed:
        major, minor, _ = map(int, version.split("."))
        if (major, minor) >= OLDEST:
            newest.setdefault((major, minor), version)
    return list(newest.values())


def _tried(python: Path, torch: str, wheel: Path, *, keep: bool) -> Entry:
    """Everything of one pair."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    name = re.sub(r"^Python ", "", _run(python, "--version").strip())
    folder = BUILD / f"py{name}-torch{torch}"
    try:
        own = _environment(python, torch, wheel, folder)
        recorder = _run(own, "-c", RECORDER).strip() == "True"
        told = _run(own, "-c", "import torch; print(torch.__version__)").strip()
        return Entry(name, told, day, recorder, dict(_played(own, folder)))
    except CommandError as error:
        return Entry(name, torch, day, error=str(error))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _environment(python: Path, torch: str, wheel: Path, folder: Path) -> Path:
    """The Python of a new environment with torch, and hangwatch installed behind it. Raises CommandError."""
    _run(python, "-m", "venv", folder)
    own = folder / "bin" / "python"
    _run(own, "-m", "pip", "-qq", "install", f"torch=={torch}", "numpy")
    before = _run(own, "-m", "pip", "freeze").splitlines()
    _run(own, "-m", "pip", "-qq", "install", wheel)
    if missing := set(before) - set(_run(own, "-m", "pip", "freeze").splitlines()):
        raise CommandError(f"hangwatch's installation changed {', '.join(sorted(missing))}")
    return own


def _played(own: Path, folder: Path) -> Iterator[tuple[str, Said]]:
    for case in (case for name in CORE for case in CASES if case.name == name):
        yield case.name, _verdict(own, folder / case.name, case)
    yield HEALTHY, _healthy(own, folder / HEALTHY)


def _verdict(own: Path, folder: Path, case: Case) -> Said:
    _demo(own, folder, case.name)
    written = sorted(folder.glob("incident-*.json"))
    if not written:
        return Said(False)
    verdict = files.read(written[-1]).verdict
    blamed = {culprit.rank for culprit in verdict.culprits}
    right = verdict.cause == case.cause and blamed == set(case.culprits(case.culprit or 0, case.ranks))
    return Said(right, verdict.cause, str(verdict.hang or ""), str(verdict.certainty))


def _healthy(own: Path, folder: Path) -> Said:
    _demo(own, folder, CORE[0], "--healthy")
    incidents = [files.read(path) for path in sorted(folder.glob("incident-*.json"))]
    alarms = [incident for incident in incidents if incident.status in ALARMS]
    return Said(not alarms, alarms[0].verdict.cause if alarms else "")


def _demo(own: Path, folder: Path, *words: str) -> None:
    """Play a script, away from the checkout. Its output and its exit code do not matter, its reports do."""
    folder.mkdir()
    given = [str(own), "-m", "hangwatch", "demo", *words, "--no-wait", "--no-dashboard", "--report-dir", str(folder)]
    with (folder / "output.txt").open("wb") as output:
        subprocess.run(given, cwd=folder, stdout=output, stderr=output, env=_clean(), check=False)


def _run(*words: str | Path) -> str:
    """What a command prints. Raises CommandError with its last line if it fails."""
    command = [str(word) for word in words]
    try:
        done = subprocess.run(command, cwd=BUILD, env=_clean(), capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{Path(command[0]).name} took longer than {LONGEST:.0f} s") from error
    if done.returncode:
        raise CommandError(((done.stderr or done.stdout).strip().splitlines() or ["no output"])[-1])
    return done.stdout


def _clean() -> dict[str, str]:
    """Our environment without what would let this checkout's hangwatch in."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("HANGWATCH_", "PYTHONPATH"))}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
