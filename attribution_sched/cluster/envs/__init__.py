"""Worlds as Gymnasium environments, and their registration by name."""
