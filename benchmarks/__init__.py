"""The source of the README's figures: always ratios to a peer or a limit, measured in one run."""
