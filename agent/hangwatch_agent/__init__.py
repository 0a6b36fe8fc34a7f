"""What runs in the ranks, and beside them on each node: the probe, the watchdog, and what they take of evidence.

Importing this package imports nothing else: a rank pays for the parts that it uses. The ranks need the standard library
only, the watchdog psutil too; neither knows FastAPI.
"""
