"""`make gpu`: hangwatch under real NCCL, several ranks on one GPU, and a page of results. Needs no network."""
