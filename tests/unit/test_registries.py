"""Nothing here names a package registry: pip, npm and the like use what the machine's owner has set up."""

from __future__ import annotations

import lzma
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPERATORS = "anaconda|crates|docker|gcr|ghcr|npmjs|nvcr|pypa|pypi|pythonhosted|quay|rubygems|yarnpkg"
HOST = re.compile(
    rf"\b(?:[\w-]+\.)*(?:{OPERATORS})\.(?:co|com|dev|io|net|org)\b|\b(?:download|wheels?)\.[\w-]+\.org\b", re.I
)
SIGNS = [*(f"{name}.".encode() for name in OPERATORS.split("|")), b"download.", b"wheel", b"index-url", b"registry"]
INDEX = re.compile(r"--(?:extra-)?index-url[ =]+['\"]?https?:|\bregistry *=.*https?:", re.I)


def committed() -> list[Path]:
    """Every file of the repository."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


@cache
def content(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def named(text: str) -> list[str]:
    """The patterns are slow, and most files have none of the words that they ask for."""
    lower = text.lower().encode()
    if not any(sign in lower for sign in SIGNS):
        return []
    return [found[0] for pattern in (HOST, INDEX) for found in pattern.finditer(text)]


def test_no_file_names_a_registry() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    found = {path.name: named(content(path).decode("utf-8", "ignore")) for path in committed()}
    assert {name: hosts for name, hosts in found.items() if hosts} == {}


def test_what_is_not_text_is_a_picture_of_the_docs_or_kept_evidence() -> None:
    """A package of others that slipped in would be seen."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    binary = {path.relative_to(ROOT) for path in committed() if b"\0" in content(path)}
    assert {str(path) for path in binary if (path.parent, path.suffix) != (Path("docs/images"), ".png")} == set()


@pytest.mark.parametrize(
    "host", [("files", "pythonhosted", "org"), ("registry", "npmjs", "org"), ("download", "x", "org")]
)
def test_a_registry_would_be_seen(host: tuple[str, ...]) -> None:
    assert named(f"see https://{'.'.join(host)}/simple")


def test_an_index_would_be_seen() -> None:
    assert named("pip install --index-url " + "https://mirror.example/simple torch")
    assert named('pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch') == []
