"""Standardiser, linear layer, recalibration and scores from sums with privacy noise."""
