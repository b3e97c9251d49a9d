"""The world: tasks and layers, GPUs, networks, and what a plan costs on them; simulator and environments.

Start at ``world.World`` (the scheduling problem), ``cost.CostModel`` (what a plan takes), ``engine.Engine`` (many
clusters at once), ``env`` and ``vector_env`` (Gymnasium), ``simulator`` (events, failures, preemption).
"""
