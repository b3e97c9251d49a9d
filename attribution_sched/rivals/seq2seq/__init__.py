"""A scheduler that learnt from the exact optimum: it reads the domains and writes a plan piece by piece."""
