"""What every request needs: authentication, limits, bodies, problems, logs, metrics."""
