"""`make matrix`: hangwatch on the Pythons and versions of torch that can be had here."""
