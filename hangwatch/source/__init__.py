"""Hints from the user's source code: loops, skip paths, rank guards. They are never proof."""
