"""A table as its schema reads it, up to standardised tensors."""
