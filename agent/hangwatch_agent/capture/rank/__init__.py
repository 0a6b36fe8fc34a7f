"""What ranks themselves leave behind or answer: collectives, logs, crash traces."""
