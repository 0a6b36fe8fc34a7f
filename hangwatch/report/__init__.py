"""An incident, told: as JSON, in the terminal, as HTML, for speedscope. Pure functions of the record."""

from hangwatch.report.incident import evidence_of, recovered, snapshot_of

__all__ = ["evidence_of", "recovered", "snapshot_of"]
