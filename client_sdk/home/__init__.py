"""What a hospital must not forget: its identity, its journal, its ledger."""
