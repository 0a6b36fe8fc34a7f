"""The start of a job: the launch, the rendezvous, the groups that are made."""
