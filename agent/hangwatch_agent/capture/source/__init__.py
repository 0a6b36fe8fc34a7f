"""What the user's source code shows of the places where ranks stand."""
