"""Algorithms over held-out rows: recalibration and evaluation."""
