"""In which step the ranks' histories part, which ranks left the common path there, and how."""
