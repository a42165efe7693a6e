"""The map x → φ(x): the unifying random kernel, its spec and its architectures."""
