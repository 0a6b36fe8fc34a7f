"""What hangwatch costs, measured: each module prints its figures as JSON."""
