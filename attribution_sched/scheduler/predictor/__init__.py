"""Forecasts of link bandwidth.

``base`` holds the protocol; ``persistence`` the baseline, ``kalman`` and ``gru`` the predictors; ``score`` measures
them against the baseline. ``kalman_state`` is the filter as pure functions of arrays, ``kalman_fit`` learns its
parameters from a recording, ``paths`` and ``gru_training`` make the weights of the recurrent network.
"""
