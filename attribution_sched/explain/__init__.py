"""Explanations of decisions: Shapley estimators, reward drivers, plots and reports."""
