"""The Bayesian linear layer from sums: statistics, evidence, refit, posterior."""
