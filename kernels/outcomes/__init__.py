"""Outcomes other than a real number, as weighted sums of the linear layer's statistics."""
