"""The ranks of this node as their boards tell: how each stands, since when, and how long it may."""
