"""Algorithms over a table's columns: the moments of the columns."""
