"""HTTP routes, a file for each kind of user: they read, ask a module of `service`, answer."""
