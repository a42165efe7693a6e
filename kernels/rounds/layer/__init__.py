"""Phase 2: algorithms that fit the Bayesian linear layer."""
