"""The papers' other methods, for comparison."""
