"""A run as a machine without I/O: messages and time in, changes out."""
