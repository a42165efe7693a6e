"""How good a prediction is, and recalibration."""
