"""Masked proximal policy optimisation in plain torch: masks, advantages, the update, a flat agent."""
