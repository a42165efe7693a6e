"""One session with a coordinator, as a conversation without a network."""
