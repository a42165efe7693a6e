"""Federated algorithms as rounds of sums: one file each, with the site's and coordinator's code."""
