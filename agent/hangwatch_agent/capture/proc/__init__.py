"""What the kernel says of the job's processes and of this node."""
