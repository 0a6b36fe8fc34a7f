"""The folder that `hangwatch run` puts first on PYTHONPATH: Python imports its `sitecustomize` at every start."""

from __future__ import annotations

from pathlib import Path


def bootstrap_folder() -> Path:
    """The folder for PYTHONPATH."""
    return Path(__file__).resolve().parent
