"""Masked proximal policy optimisation in plain torch: ``ppo`` is the algorithm, ``flat`` an agent of one level."""
