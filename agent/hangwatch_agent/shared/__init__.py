"""What every room of the agent uses: the clock, /proc, jobs and ranks by their environment, redaction.

Standard library only: ranks import it.
"""
