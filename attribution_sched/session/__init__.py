"""What a :class:`~attribution_sched.system.System` is made of: cluster, tasks, results, memory of decisions, replay."""
