"""What the shell command `veilgp` can do at a hospital, one file each.

Each imports what it needs when it runs: `veilgp --version` loads no torch.
"""
