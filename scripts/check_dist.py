"""`make dist`: builds sdist and wheel, and checks both in clean virtual environments, as a user gets them.

Each environment has a torch already, the smallest that pip accepts as one, and of a version that pip would replace if
anything asked for torch. Checked in each: torch is what it was; the entry points answer; the dashboard serves its page
with everything that the page loads; an HTML report has its interactive part; and both install the same files.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

from hangwatch.commands import SUBCOMMANDS
from hangwatch.wire import codec
from tests.examples import uneven_steps

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
TORCH = "2.4.0"  # the oldest that hangwatch works with
INTERACTIVE = '<script id="incident" type="application/json">'
ASSET = re.compile(r'(?:src|href)="(/[^"]+)"')
STARTS_WITHIN = 60.0  # seconds


class DistError(Exception):
    """What was built is not what a user needs."""


def main() -> str | None:
    try:
        files = build()
        with tempfile.TemporaryDirectory(prefix="hangwatch-dist-") as name:
            torch = stand_in(Path(name))
            installed = [check(file, Path(name) / file.suffix.strip("."), torch) for file in files]
        require(installed[0] == installed[1], f"the two install other files: {installed[0] ^ installed[1]}")
    except DistError as error:
        return f"hangwatch: {error}"
    print(f"hangwatch: {', '.join(file.name for file in files)} in {DIST}: checked")
    return None


def require(held: bool, otherwise: str) -> None:
    """Raise DistError if something does not hold."""
    if not held:
        raise DistError(otherwise)


def build() -> list[Path]:
    """The sdist, and the wheel that is built from it."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    files = sorted(DIST.iterdir())
    require({file.suffix for file in files} == {".whl", ".gz"}, f"built: {files}")
    return files


def stand_in(folder: Path) -> Path:
    """A wheel that pip takes for torch: a module and its metadata."""
    path = folder / f"torch-{TORCH}-py3-none-any.whl"
    parts = {
        "torch/__init__.py": f'__version__ = "{TORCH}"\n',
        f"torch-{TORCH}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH}\n",
        f"torch-{TORCH}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"torch-{TORCH}.dist-info/RECORD"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in parts.items():
            wheel.writestr(name, text)
        wheel.writestr(record, "".join(f"{name},,\n" for name in (*parts, record)))
    return path


def check(file: Path, folder: Path, torch: Path) -> frozenset[tuple[str, str]]:
    """Install one of the two beside a torch and try it. Gives the installed files with their hashes."""
    print(f"hangwatch: checking {file.name}", flush=True)
    venv.create(folder, with_pip=True)
    pip(folder, "install", "--no-deps", torch)
    before = digests(folder, "torch*")
    pip(folder, "install", f"{file}[dashboard]")
    require(digests(folder, "torch*") == before, "the installation has changed torch")
    pip(folder, "check")
    check_commands(folder, file.name.split("-")[1].removesuffix(".tar.gz"))
    check_report(folder)
    check_dashboard(folder)
    return digests(folder, "hangwatch*")


def check_commands(folder: Path, version: str) -> None:
    """Both ways to call hangwatch, and the help of each of its commands."""
    for words in (("bin/hangwatch",), ("bin/python", "-m", "hangwatch")):
        said = run(folder / words[0], *words[1:], "--version", cwd=folder)
        require(said.strip() == f"hangwatch {version}", f"{' '.join(words)} --version says {said!r}")
    for command in SUBCOMMANDS:
        require("usage:" in run(folder / "bin/hangwatch", command, "--help", cwd=folder), f"no help of {command}")


def check_report(folder: Path) -> None:
    """An incident's HTML report is the page, with the incident in it."""
    incident = folder / "incident.json"
    incident.write_text(codec.dumps(uneven_steps()))
    page = run(folder / "bin/hangwatch", "report", incident, "--html", "-", cwd=folder)
    require(INTERACTIVE in page and "<script>" in page, f"the HTML report has no interactive part ({len(page)} bytes)")


def check_dashboard(folder: Path) -> None:
    """The dashboard starts and serves its page, with all that the page loads."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["bin/hangwatch", "dashboard", "--port", str(port), "--database", "dashboard.db"]
    log = folder / "dashboard.log"
    with log.open("wb") as output, subprocess.Popen(words, cwd=folder, stdout=output, stderr=output) as service:
        try:
            await_answer(port, service, log)
            page = get(port, "/")
            assets = ASSET.findall(page)
            require(any(name.endswith(".js") for name in assets), f"the dashboard serves no page: {page[:300]}")
            for name in assets:
                get(port, name)
        finally:
            service.terminate()


def await_answer(port: int, service: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the dashboard answers. Raises DistError if it ends, or takes too long."""
    deadline = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < deadline and service.poll() is None:
        try:
            get(port, "/healthz")
            return
        except OSError:
            time.sleep(0.2)
    raise DistError(f"the dashboard did not start:\n{log.read_text()}")


def get(port: int, path: str) -> str:
    """What the dashboard answers. Raises DistError unless that is 200, OSError where nothing listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read().decode("utf-8", "replace")
    require(answer.status == http.client.OK, f"the dashboard answers {answer.status} to {path}")
    return body


def digests(folder: Path, pattern: str) -> frozenset[tuple[str, str]]:
    """Every file below site-packages that fits, with the hash of its contents, but what Python and pip wrote there."""
    (site,) = folder.glob("lib/python*/site-packages")
    found = (file for match in site.glob(pattern) for file in (match.rglob("*") if match.is_dir() else (match,)))
    kept = (file for file in found if file.is_file() and file.suffix != ".pyc" and "dist-info" not in str(file))
    return frozenset((str(file.relative_to(site)), hashlib.sha256(file.read_bytes()).hexdigest()) for file in kept)


def pip(folder: Path, *words: str | Path) -> str:
    return run(folder / "bin/python", "-m", "pip", "--disable-pip-version-check", "-qq", *words)


def run(*words: str | Path, cwd: Path | None = None) -> str:
    """What a command prints. Raises DistError with it if the command fails."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HANGWATCH_STATIC")}
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=clean, capture_output=True, text=True)
    require(done.returncode == 0, f"{' '.join(map(str, words))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
