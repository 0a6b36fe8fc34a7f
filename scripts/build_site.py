"""`make site`: the documentation as a site, below build/site.

Its pages are those of docs/ and of the repository's root, with their links turned to where the site has them, and one
page for each cause, made of its section of docs/causes.md, the catalogue's words, the gallery's scripts and a real
report (docs/reports, by `make reports`). In the site causes.md is their list, with the anchors that verdicts link to.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.cause_pages import listed, pages

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SOURCE = ROOT / "build" / "site-source"
CONFIG = ROOT / "build" / "site.yml"  # paths in it are seen from its folder

# What pages link to outside of docs/, and what it is called in the site.
OUTER = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
    "LICENSE": "LICENSE",
    "hangwatch/report/incident.schema.json": "incident.schema.json",
}
NAVIGATION: dict[str, tuple[str, ...]] = {
    "Start": ("index.md", "five-minutes.md", "readme.md", "reading-a-verdict.md", "troubleshooting.md"),
    "Causes": (),  # their pages are added
    "Use": ("commands.md", "configuration.md", "frameworks.md", "doctor.md", "dumps.md", "report.md"),
    "Operate": ("dashboard.md", "operations.md", "api.md", "security.md"),
    "How it works": ("how-it-works.md", "nccl.md", "comparison.md"),
    "Measured": (
        "benchmark.md",
        "overhead.md",
        "harmless.md",
        "world.md",
        "gpu.md",
        "versions.md",
    ),
    "Project": ("contributing.md", "changelog.md", "security-policy.md"),
}


def main() -> int:
    gather()
    if complaint := strays():
        print(f"hangwatch: {complaint}", file=sys.stderr)
        return 1
    shared = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    own = f"docs_dir: {SOURCE.name}\nsite_dir: site\nnav: {json.dumps(navigation())}\n"
    CONFIG.write_text(shared + own, encoding="utf-8")
    shutil.rmtree(CONFIG.parent / "site", ignore_errors=True)
    build = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(CONFIG)]
    return subprocess.run(build, check=False).returncode


def strays() -> str:
    """Pages without a place in the navigation, and places without a page; "" where there are none."""
    listed = {page for part in navigation() for pages in part.values() for page in pages}
    written = {str(page.relative_to(SOURCE)) for page in SOURCE.rglob("*.md")}
    return f"not both page and in the navigation: {', '.join(sorted(listed ^ written))}" if listed != written else ""


def gather() -> None:
    """Write every page of the site below build/site-source."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(DOCS, SOURCE, ignore=shutil.ignore_patterns("reports"))
    for page in DOCS.glob("*.md"):
        (SOURCE / page.name).write_text(from_docs(page.read_text(encoding="utf-8")), encoding="utf-8")
    for name, called in OUTER.items():
        (SOURCE / called).write_text(from_root((ROOT / name).read_text(encoding="utf-8")), encoding="utf-8")
    causes = (DOCS / "causes.md").read_text(encoding="utf-8")
    (SOURCE / "causes.md").write_text(from_docs(listed(causes)), encoding="utf-8")
    (SOURCE / "causes").mkdir()
    for name, text in pages(causes, DOCS / "reports").items():
        (SOURCE / "causes" / f"{name}.md").write_text(text, encoding="utf-8")


def from_docs(text: str) -> str:
    """A page of docs/ with its links to the root's pages turned."""
    for name, called in OUTER.items():
        text = text.replace(f"](../{name}", f"]({called}")
    return text


def from_root(text: str) -> str:
    """A page of the repository's root with its links turned."""
    for name, called in OUTER.items():
        text = re.sub(rf"\]\({re.escape(name)}(?=[)#])", f"]({called}", text)
    return re.sub(r'(\]\(|src="|srcset=")docs/', r"\1", text)


def navigation() -> list[dict[str, list[str]]]:
    """What mkdocs shows as tabs, with the pages of each."""
    causes = ["causes.md", *(f"causes/{name}.md" for name in pages((DOCS / "causes.md").read_text(encoding="utf-8")))]
    return [{title: causes if title == "Causes" else list(names)} for title, names in NAVIGATION.items()]


if __name__ == "__main__":
    sys.exit(main())
