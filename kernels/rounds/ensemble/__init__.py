"""Predictive space: algorithms that combine many sites' posteriors into one prediction."""
