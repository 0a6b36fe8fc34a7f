"""Causes of hangs in data loading."""
