"""What runs in the training process. Standard library only; it knows the board, and nothing of the watchdog."""
