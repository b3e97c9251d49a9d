"""The bill: energy, electricity, egress, carbon, device time, idle capacity and congestion, shared between tenants.

What was used is one record (:mod:`~attribution_sched.billing.usage`); a rule says who answers for what
(:mod:`~attribution_sched.billing.rules`); :func:`~attribution_sched.billing.bill.make_bill` writes the lines, which add
up to the meter together with what nobody answers for.
"""
