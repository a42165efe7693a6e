"""How a database comes to the form of `service.database.tables`; run by `Database.migrate`."""
