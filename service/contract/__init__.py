"""The published OpenAPI document, and what routes declare for it."""
