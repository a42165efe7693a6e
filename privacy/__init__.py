"""How a vector leaves a client: bounds, integers, noise, masks, and what it cost.

Sans I/O: nothing here opens a socket, a file or a database, reads a clock or sleeps.
"""
