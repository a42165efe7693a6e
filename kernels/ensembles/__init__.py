"""Committees of the sites' networks, and the student networks distilled from them."""
