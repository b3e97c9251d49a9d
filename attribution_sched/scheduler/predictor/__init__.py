"""Forecasts of link bandwidth: ``forecast`` has the protocol, persistence and the Kalman filter, ``gru`` a network."""
