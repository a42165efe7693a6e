"""The hospital's rows, as its half of an algorithm sees them."""
