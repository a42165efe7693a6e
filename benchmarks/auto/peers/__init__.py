"""Methods with all rows in one place."""
