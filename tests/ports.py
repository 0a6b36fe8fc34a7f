"""Ports of loopback for servers that tests start."""

from __future__ import annotations

from hangwatch.ports import free_port

__all__ = ["free_port"]
