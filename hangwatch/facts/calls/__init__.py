"""The calls that ranks made and make: from where, in which order, and how they were paired."""
