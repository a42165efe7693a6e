"""The same quantities from sums with differential-privacy noise in them."""
