"""Whether the job is dead: the wait-for graph, and the argument as sentences."""
