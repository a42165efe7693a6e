"""Predictions of stored models, in three formats: JSON, Arrow, Open Inference Protocol."""
