"""The glass-box twin of Hi-PPO: decision trees in the place of its agents' learnt numbers."""
