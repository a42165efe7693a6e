"""A run as a state machine without I/O: messages and time in, changes out."""
