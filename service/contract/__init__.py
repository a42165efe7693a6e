"""The published OpenAPI document: structure, examples and links."""
