"""What the README's figures come from: always a ratio against a peer or a limit, in one run."""
