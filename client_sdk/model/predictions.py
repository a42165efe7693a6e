"""Predictions and intervals as numpy arrays in the targets' units."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import PackageMissing, UnknownTarget
from client_sdk.model.outcomes import Floats, OutcomePredictions
from kernels.model import prediction
from kernels.tables.targets import AnyTarget, Target

ColumnsByName = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, eq=False, repr=False)
class Intervals:
    """Lower and upper ends for each row and target, (n, T); conformal ends may be infinite.

    `intervals["stay"]` is one target's (lower, upper), each (n,).
    """

    targets: tuple[Target, ...]
    level: float
    kind: str
    lower: Floats
    upper: Floats

    def __getitem__(self, target: str) -> tuple[Floats, Floats]:
        column = _position(self.targets, target)
        return self.lower[:, column], self.upper[:, column]

    def to_dict(self) -> ColumnsByName:
        """Return columns `<target>.lower` and `<target>.upper`."""
        ends = (("lower", self.lower), ("upper", self.upper))
        return {
            f"{target.name}.{name}": values[:, column]
            for column, target in enumerate(self.targets)
            for name, values in ends
        }

    def to_pandas(self) -> Any:
        """Return the same as a `pandas.DataFrame`."""
        return as_frame(self.to_dict())

    def __len__(self) -> int:
        return len(self.lower)

    def __repr__(self) -> str:
        names = _listed(self.targets)
        return f"Intervals({self.kind}, {self.level:g}: {len(self)} rows of {names})"


class Predictions:
    """n predictions of T targets in their units; its repr shows no values.

    targets: those that are real numbers, perhaps none; mean and variance have a column for each.
    outcomes: the predictions of all other targets, in order; empty for methods other than `fedbnr`.
    method: the method that made them.
    mean, variance: (n, T); the variance is that of a new observation, for `fedbnr` after
        recalibration.
    extrapolates: (n,) bool; whether a number of the row is outside the schema's bounds.

    `predictions["stay"]` has one target's arrays, (n,), whatever its kind; `to_pandas` has one
    column per array and target.
    """

    def __init__(self, predicted: prediction.Predictions) -> None:
        self._predicted = predicted
        self.targets = predicted.targets
        self.outcomes = tuple(map(OutcomePredictions, predicted.outcomes))
        self.method = predicted.method
        self.mean: Floats = predicted.mean.numpy()
        self.variance: Floats = predicted.variance.numpy()
        self.extrapolates: NDArray[np.bool_] = predicted.extrapolates.numpy()

    @property
    def latent_variance(self) -> Floats:
        """The part of the variance that is not noise, (n, T); only `fedbnr` provides it."""
        latent: Floats = self._predicted.latent_variance.numpy()
        return latent

    @property
    def noise_variance(self) -> Floats:
        """The noise part of the variance, (T,), equal for all rows; only `fedbnr` provides it."""
        noise: Floats = self._predicted.noise_variance.numpy()
        return noise

    def intervals(self, level: float = 0.9, *, kind: str | None = None) -> Intervals:
        """Return central intervals that contain a new observation with probability `level`.

        They are those of targets that are real numbers, of which there must be at least one.
        kind: "conformal" (with at least that probability, whatever the distribution of residuals;
        the default of `fedbnr`), "student_t" (from the recalibrated distribution) or "gaussian"
        (the method's own variance, without recalibration; the only kind of other methods).
        """
        if not self.targets:
            raise UnknownTarget(
                f"the model predicts {_listed(self._all())}, none of which is a real number: "
                "there are no central intervals"
            )
        kind = self._predicted.interval_kind if kind is None else kind
        lower, upper = self._predicted.interval(level, kind)
        return Intervals(self.targets, level, kind, lower.numpy(), upper.numpy())

    def __getitem__(self, target: str) -> "TargetPredictions | OutcomePredictions":
        for own in self.outcomes:
            if own.target.name == target:
                return own
        return TargetPredictions(self, _position(self.targets, target, self._all()))

    def to_dict(self) -> ColumnsByName:
        """Return columns `<target>.mean`, `.variance`, …, and `extrapolates`, each (n,).

        Those of outcomes are called as in `kernels.outcomes.named_parts`.
        """
        each = {"mean": self.mean, "variance": self.variance}
        if self._predicted.divided is not None:
            noise = np.broadcast_to(self.noise_variance, self.mean.shape)
            each |= {"latent_variance": self.latent_variance, "noise_variance": noise}
        columns: ColumnsByName = {
            f"{target.name}.{name}": values[:, column]
            for column, target in enumerate(self.targets)
            for name, values in each.items()
        }
        for own in self.outcomes:
            columns |= own.to_dict()
        return columns | {"extrapolates": self.extrapolates}

    def to_pandas(self) -> Any:
        """Return the columns of `to_dict` as a `pandas.DataFrame`."""
        return as_frame(self.to_dict())

    def _all(self) -> tuple[AnyTarget, ...]:
        return (*self.targets, *(own.target for own in self.outcomes))

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        return f"Predictions({len(self)} rows of {_listed(self._all())})"


class TargetPredictions:
    """One target's predictions: arrays (n,), and the noise variance, the same for all rows."""

    def __init__(self, predictions: Predictions, column: int) -> None:
        self._predictions, self._column = predictions, column
        self.target = predictions.targets[column]
        self.mean: Floats = predictions.mean[:, column]
        self.variance: Floats = predictions.variance[:, column]

    @property
    def latent_variance(self) -> Floats:
        """The part of the variance that is not noise; only `fedbnr` provides it."""
        return self._predictions.latent_variance[:, self._column]

    @property
    def noise_variance(self) -> float:
        """The noise part of the variance; only `fedbnr` provides it."""
        return float(self._predictions.noise_variance[self._column])

    def __repr__(self) -> str:
        return f"TargetPredictions({len(self.mean)} rows of {self.target.name})"


def as_frame(columns: ColumnsByName) -> Any:
    """Return columns as a `pandas.DataFrame`; pandas is needed for nothing else."""
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise PackageMissing(
            "a pandas.DataFrame needs pandas: pip install pandas, or use to_dict()"
        ) from error
    return pd.DataFrame(columns)


def _position(
    targets: tuple[Target, ...], name: str, known: Iterable[AnyTarget] | None = None
) -> int:
    names = [target.name for target in targets]
    if name not in names:
        there = _listed(targets if known is None else known)
        raise UnknownTarget(f"unknown target {name!r:.60}; the model predicts {there}")
    return names.index(name)


def _listed(targets: Iterable[AnyTarget]) -> str:
    return ", ".join(target.name for target in targets)
