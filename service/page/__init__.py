"""The page for people: what it shows, its plots, signing in."""
