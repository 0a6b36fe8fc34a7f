"""Causes of hangs while a job starts."""
