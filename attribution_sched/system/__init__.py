"""The loop, what can be asked of it, and how it goes on after a stop."""
