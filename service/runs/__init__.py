"""A run from start to model: storage, engine, leases."""
