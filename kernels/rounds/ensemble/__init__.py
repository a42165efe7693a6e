"""Predictive space: algorithms that make one prediction of many sites' posteriors."""
