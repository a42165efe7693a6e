"""The page for people: HTML routes and forms, which do what the REST routes do.

A form calls the function of the REST route for the same thing, with the same request model: the
same rules and errors apply. A refusal is shown beside the form, with what was entered.
"""
