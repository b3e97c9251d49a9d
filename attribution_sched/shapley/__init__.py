"""Shapley values of any function of named inputs, with standard errors and sampling that stops when they are small."""
