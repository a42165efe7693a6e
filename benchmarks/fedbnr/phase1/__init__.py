"""Phase 1 of FedBNR: how the kernel is learnt, a file for each way."""
