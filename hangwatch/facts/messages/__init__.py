"""Sends and receives between two ranks: sizes, totals, and who left the habit of the two."""
