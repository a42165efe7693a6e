"""Tables: schemas, reading and checking rows, and standardising them into tensors."""
