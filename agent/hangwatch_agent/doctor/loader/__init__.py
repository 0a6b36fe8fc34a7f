"""One process that walks a loader for `hangwatch doctor loader`, and tells what it sees after every pass."""
