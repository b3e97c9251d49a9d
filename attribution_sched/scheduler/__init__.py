"""Schedulers: the policy protocol and every policy that satisfies it."""
