"""Policies against each other on the same days, with intervals."""
