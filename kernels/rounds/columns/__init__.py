"""Algorithms over a table's columns: their moments."""
