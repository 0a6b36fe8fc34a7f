"""What is hooked in a rank, one class a file: `install()` and `remove()` are idempotent and restore exactly."""
