"""The programs that start ranks, by the names in their command lines, and the numbers that they give by variables.

The names stand in launchers.txt, because hangwatch_agent/doctor/takeover/sitecustomize.py reads them too: in Pythons
that cannot import hangwatch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_NAMES = Path(__file__).with_suffix(".txt").read_text(encoding="ascii").split()

TORCH_MODULES = tuple(name for name in _NAMES if name.startswith("torch."))
# Programs of torch: processes of Python that import torch, and may have a RANK of their own.
TORCH_PROGRAMS = ("torchrun", *TORCH_MODULES)
PROGRAMS = frozenset(_NAMES).difference(TORCH_MODULES)


def number(environment: Mapping[str, str], name: str) -> int | None:
    """The whole number that a variable holds; None where it holds none."""
    text = environment.get(name, "").strip()
    return int(text) if text.isdigit() and len(text) < 10 else None
