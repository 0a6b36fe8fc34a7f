"""The way to the dashboard: everything goes to a spool on disk first, and from there in order."""
