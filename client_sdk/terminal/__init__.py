"""What people at a hospital see: the command `veilgp`, progress, plots, the doctor."""
