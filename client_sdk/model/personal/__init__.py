"""A hospital's own model over the global kernel: made at home, and sent nowhere."""
