"""What policies ask for by default (docs/threats.md, A12); programs are made to meet it."""

LEAST_ROWS = 50
"""Rows of a hospital's own that are summed together."""

ROWS_PER_FEATURE = 3.0
"""The same for each feature of the kernel, or of both that may be mixed."""

RATIO = 0.5
"""The most exact numbers that become known, per cell of the other members' rows."""
