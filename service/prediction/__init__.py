"""Stored models and `/predict` in its three formats."""
