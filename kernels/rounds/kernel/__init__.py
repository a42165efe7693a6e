"""Phase 1: algorithms that train the kernel."""
