"""What a hospital installs: its local table, its own policy, and the one door out."""
