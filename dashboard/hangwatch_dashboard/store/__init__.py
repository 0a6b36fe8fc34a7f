"""What must survive: runs of jobs, the last batch of every node, captures, incidents, messages to people.

The same code on SQLite (one file, one dashboard) and on PostgreSQL (several dashboards behind one address).
"""
