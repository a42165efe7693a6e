"""The parts that a site's rows are dealt to (`kernels.rounds.site.site` says why)."""

from enum import StrEnum


class Part(StrEnum):
    """What a part's rows are used for."""

    TRAINING = "training"
    """Fitting models."""
    STOPPING = "stopping"
    """Choosing among fitted models."""
    CALIBRATION = "calibration"
    """Scoring and recalibrating the chosen model."""
    ADDED = "added"
    """New rows for training, to add to a fitted model."""
    REMOVED = "removed"
    """Rows of the training part to remove from a fitted model."""
    ADDED_HELD_OUT = "added_held_out"
    """New rows that are dealt to stopping or to calibration."""
    REMOVED_HELD_OUT = "removed_held_out"
    """Rows for stopping or calibration, to remove from a fitted model."""
