"""What phase 2 leaves in a model for one outcome: q of each latent function, and constants.

A time to an event has one latent function of the features of a row beside indicators of the J
intervals (`kernels.outcomes.time_to_event`), so M + J features; all others have the kernel's M.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from kernels.errors import StateError
from kernels.outcomes.variational import Layer
from kernels.tables.schema import Schema
from kernels.tables.targets import Classes, Count, Outcome, TimeToEvent


@dataclass(frozen=True, eq=False)
class FittedOutcome:
    """One outcome's layers and constants.

    layers: q of each latent function: one for each class, or a single one. offsets: o of each.
    dispersion: r of a count; None for others.
    """

    STORED_AS: ClassVar[str] = "outcome.fitted"

    layers: tuple[Layer, ...]
    offsets: tuple[float, ...]
    dispersion: float | None = None

    @property
    def rows(self) -> int:
        """The number of rows of the table that were summed."""
        return self.layers[0].sums.count

    def check(self, outcome: Outcome, features: int) -> None:
        """Refuse what cannot be this outcome's; it may come from untrusted bytes."""
        functions = latent_functions(outcome)
        wide = layer_features(outcome, features)
        if not (
            isinstance(self.layers, tuple)
            and isinstance(self.offsets, tuple)
            and len(self.layers) == len(self.offsets) == functions
            and all(isinstance(own, Layer) and own.features == wide for own in self.layers)
            and all(isinstance(own, float) and math.isfinite(own) for own in self.offsets)
        ):
            raise StateError(
                f"the outcome {outcome.name!r} must have {functions} layers of {wide} features, "
                "and as many offsets"
            )
        positive = isinstance(self.dispersion, float) and 0 < self.dispersion < math.inf
        if isinstance(outcome, Count) != positive or (self.dispersion is not None) != positive:
            raise StateError("a count must have a positive dispersion, and no other outcome one")


def latent_functions(outcome: Outcome) -> int:
    """Return how many latent functions an outcome has."""
    return len(outcome.levels) if isinstance(outcome, Classes) else 1


def layer_features(outcome: Outcome, features: int) -> int:
    """Return the number of features of an outcome's layers, from the kernel's."""
    return features + (len(outcome.intervals) if isinstance(outcome, TimeToEvent) else 0)


def check_outcomes(fitted: object, schema: Schema, features: int) -> None:
    """Refuse anything but one fitted outcome for each of a schema's."""
    own = fitted if isinstance(fitted, tuple) else ()
    if len(own) != len(schema.outcomes) or not all(isinstance(f, FittedOutcome) for f in own):
        raise StateError(
            f"model.outcomes must be a tuple of {len(schema.outcomes)} fitted outcomes"
        )
    for outcome, each in zip(schema.outcomes, own, strict=True):
        each.check(outcome, features)
