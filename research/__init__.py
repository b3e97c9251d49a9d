"""What only studies and calibrations use; beside the package, not installed with it."""
