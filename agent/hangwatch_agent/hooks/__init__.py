"""What is hooked in a rank, one class a file: `install()` and `remove()`, idempotent, each puts back exactly what was there."""
