"""Forecasts of link bandwidth.

``base`` holds the protocol; ``persistence`` the baseline, ``kalman`` and ``gru`` the predictors. ``kalman_state`` is
the filter as pure functions of arrays. What fits their parameters and scores them stands in ``research``.
"""
