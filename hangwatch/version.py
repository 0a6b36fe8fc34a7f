"""The version, for all that report it: `import hangwatch` brings the way in to everything."""

from __future__ import annotations

__version__ = "0.1.0"
