"""The parts of `hangwatch bench`: what is played, what is measured, and how the results are shown and kept."""
