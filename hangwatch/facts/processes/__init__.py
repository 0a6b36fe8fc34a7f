"""Processes: where they stand, what they wait for, how they ended."""
