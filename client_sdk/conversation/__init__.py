"""One session with a coordinator, as a conversation that does no network I/O."""
