"""Bytes of every stored kind, committed: what was written once must be read for ever, or refused.

`python -m tests.golden` writes them anew; `test_golden.py` compares them with this code. A change
there is a change of a format: of what hospitals and coordinators store and send each other.
"""
