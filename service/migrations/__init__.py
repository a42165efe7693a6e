"""How a database comes to the form of `service.tables`; run by `Database.migrate`."""
