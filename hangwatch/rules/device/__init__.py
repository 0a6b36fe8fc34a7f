"""Causes of hangs of devices and their links."""
