"""Frames, and what a thread is doing by them."""
