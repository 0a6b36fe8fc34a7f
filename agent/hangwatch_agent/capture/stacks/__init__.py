"""Stacks of other processes, and what keeps them from being taken."""
