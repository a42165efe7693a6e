"""What stands around every request: identity, limits, bodies, problems, logs, metrics."""
