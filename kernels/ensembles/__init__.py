"""Many sites' networks as one: committees, and the students distilled from them."""
