"""Nodes that share a report directory and have no dashboard: one verdict for all of them."""
