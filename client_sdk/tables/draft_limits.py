"""What a draft leaves open, and from when on it takes text for levels and numbers for codes."""

UNKNOWN = "?"
"""The unit of a number in a draft."""

MOST_LEVELS = 30
"""A text column with more distinct labels is not treated as categorical."""

FEW_ROWS = 10
"""A level with fewer rows should be merged with others."""

FEW_NUMBERS = 10
"""A column of at most so many distinct numbers may have codes."""
