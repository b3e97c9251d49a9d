"""Attempts to break it, counted: small in the fast tests, large by ``make campaign``."""
