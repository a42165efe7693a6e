"""How this hospital asks the coordinator: requests as plain data, and the one way to send them."""
