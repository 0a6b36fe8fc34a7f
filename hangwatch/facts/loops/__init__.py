"""Loops that ranks left after fewer turns than the others, and the ways out of them."""
