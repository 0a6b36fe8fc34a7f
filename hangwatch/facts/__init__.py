"""What is true of a job, blaming no rank."""
