"""The command line at a hospital: the command `veilgp` and its health checks."""
