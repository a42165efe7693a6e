"""The protocol of docs/protocol.md once more, written from that document alone, to test it."""
