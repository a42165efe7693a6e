"""What happens to a vector before it leaves a client: bounds, integers, noise, masks, accounting.

Sans I/O: nothing here opens a socket, a file or a database, reads a clock or sleeps.
"""
