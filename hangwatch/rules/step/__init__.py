"""Causes of hangs in the steps of training."""
