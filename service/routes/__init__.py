"""HTTP routes: they read a request, call a module of `service`, and answer."""
