"""Sessions: their programs, members, invitations and privacy budgets."""
