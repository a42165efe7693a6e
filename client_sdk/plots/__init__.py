"""Plots, available if matplotlib is installed."""
