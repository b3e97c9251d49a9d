"""Forecasts of link bandwidth.

``base`` holds the protocol and the baseline, persistence; ``kalman`` and ``gru`` are the predictors. What fits their
parameters and scores them stands in ``research``.
"""
