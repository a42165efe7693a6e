"""Recalibration of outcomes from sums over held-out rows, one file a kind."""
