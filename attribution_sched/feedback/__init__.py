"""From explanations back to reward weights."""
