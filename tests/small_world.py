"""A small world as settings: two domains, three kinds of short tasks, a restless network."""

from attribution_sched.config import load_settings

LEVELS = [4, 8, 16, 32]

SMALL = {
    "name": "small",
    "domains": [{"name": "east"}, {"name": "west"}],
    "domain_defaults": {"gpu": "A100-80", "devices": 4, "node_devices": 4, "carbon_g_per_kwh": 200.0},
    "network": {
        "links": {"kind": "uniform", "gbps": 5.0, "latency_s": 0.02, "usd_per_gb": 0.08},
        "motion": {"spread": 0.2, "congestion": 0.3},
    },
    "kinds": [
        {"model": "bert-base", "batch_size": 32, "microbatches": LEVELS, "steps": [400, 1200], "epoch_steps": 500},
        {"model": "gpt2-small", "batch_size": 32, "microbatches": LEVELS, "steps": [200, 600], "epoch_steps": 150,
         "priority": 1},
        {"model": "resnet-50", "batch_size": 32, "microbatches": LEVELS, "steps": [500, 1500], "epoch_steps": 2000,
         "training": False},
    ],
    "arrivals": {"kind": "poisson", "rate_per_hour": 120.0},
    "episode": {"horizon_s": 3600.0, "max_segments": 2, "max_running": 6, "queue_capacity": 4, "pool_size": 64,
                "retry_s": 300.0},
}  # fmt: skip


def small(**changes):
    """Settings of the small world, some of them changed."""
    return load_settings(SMALL | changes)
