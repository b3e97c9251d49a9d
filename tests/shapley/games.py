"""Small games with known Shapley values, and the definition itself as an oracle."""

import itertools
import math

import numpy as np

from attribution_sched.shapley.game import FunctionGame


def table_game(table):
    """A game given by the values (2^d, C) of all coalitions; bit j of a code is player j."""
    table = np.asarray(table, dtype=float)
    d = int(np.log2(len(table)))
    names = tuple(f"p{j}" for j in range(d))
    outputs = tuple(f"o{c}" for c in range(table.shape[1]))
    return FunctionGame(lambda coalitions: table[coalitions @ (1 << np.arange(d))], names, outputs)


def by_orders(table):
    """Mean marginal contribution over all d! orders, (d, C): the definition, shared with nothing under test."""
    table = np.asarray(table, dtype=float)
    d = int(np.log2(len(table)))
    phi = np.zeros((d, table.shape[1]))
    for order in itertools.permutations(range(d)):
        code = 0
        for j in order:
            phi[j] += table[code | 1 << j] - table[code]
            code |= 1 << j
    return phi / math.factorial(d)


class StateGame:
    """A smooth function of mixed inputs with interactions of order two and three, and a sampled background."""

    def __init__(self, d=8, states=40, seed=0, outputs=2, population=None):
        rng = np.random.default_rng(12345)
        self.weight = rng.normal(size=(d, outputs))
        self.pair = rng.normal(size=(d, d)) * 0.3
        self.players = tuple(f"p{j}" for j in range(d))
        self.outputs = tuple(f"o{c}" for c in range(outputs))
        self.x = rng.normal(size=d) + 0.5
        everyone = rng.normal(size=(2000, d))
        if population is None:
            self.background = everyone[np.random.default_rng(seed).choice(2000, states, replace=False)]
        else:
            self.background = everyone[:population]
        self.n_background = len(self.background)
        self.calls = []

    def __call__(self, coalitions, background):
        self.calls.append(len(coalitions))
        mixed = np.where(coalitions, self.x, self.background[background])
        # Sums row by row: a matrix product may round a row differently when other rows stand beside it.
        curved = np.einsum("ni,ij,nj->n", mixed, self.pair, mixed)[:, None]
        return (
            np.tanh(np.einsum("ni,ic->nc", mixed, self.weight))
            + 0.2 * curved
            + 0.05 * (mixed[:, :1] * mixed[:, 1:2] * mixed[:, 2:3])
        )
