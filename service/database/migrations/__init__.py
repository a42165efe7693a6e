"""Migrations to the schema of `service.database.tables`; run by `Database.migrate`."""
