"""Scores of predictions, and recalibration."""
