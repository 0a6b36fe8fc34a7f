"""The evidence of each rank by itself, and the ranks' records lined up. It knows no other room's questions."""
