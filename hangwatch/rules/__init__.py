"""One file for each cause: facts in, findings out. No rule knows of another."""
