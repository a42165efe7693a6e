"""The hospital's subcommands of `veilgp`, one file each.

Each imports what it needs when it runs: `veilgp --version` does not load torch.
"""
