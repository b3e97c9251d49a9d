"""Everything that competes with Hi-PPO: the other systems of the field, exact methods, and the arena they meet in."""
