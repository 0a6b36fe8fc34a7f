"""Causes of hangs at the end of a job."""
