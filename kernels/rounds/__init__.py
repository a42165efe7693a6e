"""Federated algorithms as rounds of sums, one file each: both halves side by side."""
