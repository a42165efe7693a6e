"""A malicious coordinator, as code: one file per row of docs/threats.md, real clients, no mocks."""
