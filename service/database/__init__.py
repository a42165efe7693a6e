"""The coordinator's database: its tables and migrations."""
