"""What runs beside the ranks of a node. `loop.Watchdog` polls, has evidence taken, judges and acts."""
