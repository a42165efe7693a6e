"""What a peer raises instead of predicting badly: a failed fit says nothing of its method."""


class NotConverged(RuntimeError):
    """The optimiser of a peer did not arrive; choose other settings for it."""
