"""The hospital's rows, as its side of an algorithm sees them."""
