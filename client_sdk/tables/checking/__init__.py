"""A table compared with a schema, column by column, for the site's own eyes.

check      the comparison
report     what it finds, as plain data
tally      the cells of one column, counted
columns    the reports of a schema's columns, from their tallies
doubts     suspicious columns
bad_cells  what cells have that do not fit
"""
