"""Conditional models of the hidden counters given the observed ones."""
