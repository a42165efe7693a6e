"""Predictions of one outcome as numpy arrays: a yes or no, classes, a count, a time to an event."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.errors import PredictionError
from kernels.outcomes.named_parts import parts_of
from kernels.outcomes.predictions import OutcomePrediction
from kernels.tables.targets import Outcome, TimeToEvent, kind_of

Floats = NDArray[np.float64]


class SurvivalCurves(NamedTuple):
    """The probability that the event comes later than each edge: mean and variance, (n, J)."""

    edges: Floats
    mean: Floats
    variance: Floats


class OutcomePredictions:
    """n predictions of one target that is not a real number; its repr shows no values.

    mean, variance: (n,): the probability of the event, the expected count or the risk by the
        horizon; of classes (n, K), the probability of each. The variance says how uncertain the
        probability is, or how far a new count may be from its expectation.
    latent_mean, latent_variance: (n,), of the logit or of the logarithm of the rate; of classes
        (n, K), and of a time to an event (n, J).

    The properties exist for some kinds only, and say so otherwise.
    """

    def __init__(self, predicted: OutcomePrediction) -> None:
        self._predicted = predicted
        self._parts = {part.name: part for part in parts_of(predicted)}
        self.target: Outcome = predicted.target
        self.kind = kind_of(predicted.target)
        self.mean = self._array("mean")
        self.variance = self._array("variance")
        self.latent_mean = self._array("latent_mean")
        self.latent_variance = self._array("latent_variance")

    @property
    def probabilities(self) -> Floats:
        """P of each level in the order of the schema, (n, K), of a yes or no and of classes."""
        return self._array("probabilities")

    @property
    def expectation_variance(self) -> Floats:
        """How uncertain a count's expectation is, (n,)."""
        return self._array("expectation_variance")

    @property
    def survival(self) -> SurvivalCurves:
        """S at the edges, of a time to an event."""
        mean, variance = self._array("survival"), self._array("survival_variance")
        edges = self.target.intervals if isinstance(self.target, TimeToEvent) else ()
        return SurvivalCurves(np.array(edges, np.float64), mean, variance)

    @property
    def median(self) -> Floats:
        """The time at which S is ½, (n,); infinite if that is beyond the last edge."""
        return self._array("median")

    def sets(self, level: float = 0.9) -> NDArray[np.bool_]:
        """Return which levels are in each row's set, (n, K), in the order of the schema.

        The sets of a yes or no and of classes contain a new row's outcome with at least this
        probability; a set may have all levels, or none. Needs recalibration.
        """
        found: NDArray[np.bool_] = self._predicted.sets(level).numpy()
        return found

    def interval(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """Return the least and the greatest count of each row's interval, each (n,).

        It contains a new count with at least this probability; the greatest may be infinite. Needs
        recalibration.
        """
        lower, upper = self._predicted.interval(level)
        return lower.numpy(), upper.numpy()

    def to_dict(self) -> dict[str, Floats]:
        """Return columns `<target>.mean`, `<target>.p.<level>`, …, each (n,)."""
        return {
            f"{self.target.name}.{name}": values.numpy()
            for part in self._parts.values()
            for name, values in part.by_column()
        }

    def _array(self, name: str) -> Floats:
        if name not in self._parts:
            there = ", ".join(self._parts)
            raise PredictionError(
                f"{self.target.name!r} is of the kind {self.kind} and has no {name}; it has {there}"
            )
        values: Floats = self._parts[name].values.numpy()
        return values

    def __len__(self) -> int:
        return len(self._predicted)

    def __repr__(self) -> str:
        return f"OutcomePredictions({len(self)} rows of {self.target.name})"
