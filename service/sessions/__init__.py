"""Who computes what: sessions, their members and what they may spend."""
