"""The malicious coordinator, as code: one file a row of threats.md, real clients, no mocks."""
