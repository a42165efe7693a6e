"""What can be drawn, where matplotlib is installed."""
