"""The same world played event by event in SimPy: slow, plain, and the oracle of the compiled engine."""
