"""What members of an epoch state together or hand to each other; the coordinator only relays it."""
