"""Records as JSON, between processes and in files."""
