"""Hi-PPO: the hierarchical scheduler."""
