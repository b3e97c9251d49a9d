"""A cap on carbon as a target of feedback: the price of carbon rises until tasks go where the cap is met."""

from __future__ import annotations

import numpy as np

from attribution_sched import System
from tests.small_world import small

CAP_KG = 0.3
REWARD = {"w_eff": 1.0, "w_util": 0.5, "w_cost": 0.5, "energy_usd_per_kwh": 0.1, "carbon_usd_per_kg": 0.1}
GRIDS = [
    {"name": "east", "gpu": "H100-80", "carbon_g_per_kwh": 700.0},
    {"name": "west", "gpu": "A100-80", "carbon_g_per_kwh": 30.0},
]


def metered(rounds: int, **options):
    """Metered kilograms a day of each round of decisions, and the system; feedback after each round."""
    settings = small(domains=GRIDS, arrivals={"kind": "poisson", "rate_per_hour": 12.0}, reward=REWARD)
    system, kg_per_day = System(settings, "rule", seed=5, explain=False, **options), []
    for _ in range(rounds):
        grams, since_s = system.cluster.totals()["carbon_g"], system.cluster.now_s
        system.run(30)
        spent = system.cluster.totals()["carbon_g"] - grams
        kg_per_day.append(86.4 * spent / (system.cluster.now_s - since_s))
        if options:
            system.feedback()
    return np.array(kg_per_day), system


def test_a_cap_on_carbon_is_met_and_without_it_the_run_stays_above():
    free, _ = metered(4)
    capped, system = metered(12, targets={"carbon_kg_per_day_at_most": CAP_KG})
    assert free.min() > 2.0 * CAP_KG
    # Before the price is high enough nothing is won, afterwards the meter itself is below the cap.
    assert capped[0] > 2.0 * CAP_KG
    assert capped[-4:].mean() <= CAP_KG
    assert system.reward.carbon_usd_per_kg > 100.0 * REWARD["carbon_usd_per_kg"]
    reasons = [record.reason for record in system.journal.feedback()]
    assert any("carbon inside R_cost is priced" in reason and "USD/kg" in reason for reason in reasons)
