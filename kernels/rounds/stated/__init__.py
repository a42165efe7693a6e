"""What is stated of programs, in plain data and words: it needs no algorithm, and so no torch."""
