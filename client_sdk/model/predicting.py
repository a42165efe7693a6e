"""What predicts a hospital's tables: the global model, and a personal one. No query leaves.

A subclass says which fitted model of `kernels.model` it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import UnknownTarget
from client_sdk.model.effects import Effects, Importance, ModelEffects
from client_sdk.model.outcomes import Floats, OutcomePredictions, SurvivalCurves
from client_sdk.model.predictions import Intervals, Predictions
from client_sdk.plots import survival
from client_sdk.tables.opening import open_table
from client_sdk.tables.schema_stream import SchemaStream
from kernels.model.methods import methods_of
from kernels.model.model import Model
from kernels.model.prediction import predict
from kernels.tables.records import Records, read_in_pieces
from kernels.tables.schema import Schema
from kernels.tables.targets import AnyTarget, Binary, Classes, Count, Target, TimeToEvent

_ESTIMATOR_TYPES = {
    Target: "regressor",
    Count: "regressor",
    Binary: "classifier",
    Classes: "classifier",
}
"""The kinds of targets as scikit-learn knows them; it has none for a time to an event."""


class PredictsTables(ABC):
    """A fitted model that predicts tables of any kind."""

    @property
    @abstractmethod
    def _fitted(self) -> Model:
        """The model that predicts."""

    @cached_property
    def _effects(self) -> ModelEffects:
        return ModelEffects(self._fitted)

    @property
    def schema(self) -> Schema:
        """The columns that the model was trained on."""
        return self._fitted.schema

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """The columns that `predict` needs, under scikit-learn's name."""
        return np.array([column.name for column in self.schema.features], dtype=object)

    @property
    def n_features_in_(self) -> int:
        """The number of columns that `predict` needs."""
        return len(self.schema.features)

    @property
    def _estimator_type(self) -> str | None:
        """Return what scikit-learn calls this model; None if its targets are of several kinds."""
        kinds = {_ESTIMATOR_TYPES.get(type(target)) for target in self.schema.targets}
        return kinds.pop() if len(kinds) == 1 else None

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags, by which `is_regressor` and `is_classifier` decide."""
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        own = self._estimator_type
        return Tags(
            estimator_type=own,
            target_tags=TargetTags(required=False, multi_output=len(self.schema.targets) > 1),
            classifier_tags=ClassifierTags() if own == "classifier" else None,
            regressor_tags=RegressorTags() if own == "regressor" else None,
            input_tags=InputTags(allow_nan=True),
            requires_fit=False,
        )

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that `predict` accepts, the default first."""
        return methods_of(self._fitted)

    def predict(self, data: object, *, method: str | None = None) -> Predictions:
        """Predict every row of a table; columns that the model does not know are ignored.

        method: one of `methods`. The table and the result are held in memory; features are computed
        for a few rows at a time.
        """
        records = Records.concatenate([*self._read(data)])
        return Predictions(predict(self._fitted, records, method=method))

    def predict_in_pieces(
        self, data: object, *, method: str | None = None
    ) -> Iterator[Predictions]:
        """Yield predictions for consecutive rows; only one piece of the table is in memory.

        A table that does not match the schema is refused at its end, with all problems: discard the
        predictions that were yielded before.
        """
        for records in self._read(data):
            yield Predictions(predict(self._fitted, records, method=method))

    def intervals(
        self,
        data: object,
        level: float = 0.9,
        *,
        kind: str | None = None,
        method: str | None = None,
    ) -> Intervals:
        """Predict a table and return central intervals, as `Predictions.intervals` does."""
        return self.predict(data, method=method).intervals(level, kind=kind)

    def predict_proba(self, data: object, target: str | None = None) -> Floats:
        """Return the probability of each level, (n, K), in the order of the schema's levels.

        target: a yes or no or one of several classes, by default the only one that there is.
        """
        name = self._only((Binary, Classes), "yes or no, or one of several classes", target)
        return self._outcome(data, name).probabilities

    def survival(self, data: object, target: str | None = None) -> SurvivalCurves:
        """Return the edges and, (n, J), the probability that the event comes later than each.

        target: a time to an event, by default the only one that there is.
        """
        name = self._only((TimeToEvent,), "time to an event", target)
        return self._outcome(data, name).survival

    def _only(self, kinds: tuple[type[AnyTarget], ...], words: str, target: str | None) -> str:
        """Return the name of a target of some kinds: the stated one, or the only one."""
        there = [own.name for own in self.schema.outcomes if isinstance(own, kinds)]
        if target in there or (target is None and len(there) == 1):
            return target or there[0]
        listed = ", ".join(there) or "none"
        raise UnknownTarget(f"target must name a {words}; the model has {listed}")

    def _outcome(self, data: object, name: str) -> OutcomePredictions:
        found = self.predict(data)
        return next(own for own in found.outcomes if own.target.name == name)

    def effects(
        self, columns: Sequence[str] | None = None, *, target: str | None = None
    ) -> Effects:
        """Return what columns do to the predictions of a target, from the model alone.

        For every column, the mean prediction over public reference rows along the column's range,
        and how uncertain the model is about this mean (`kernels.model.effects`). No row of any
        table is read. columns: by default the nine most important ones. target: by default the
        first. Only `fedbnr` has effects.
        """
        return self._effects.effects(columns, target=target)

    def importance(self, target: str | None = None) -> Importance:
        """Return how much every column matters to the predictions of a target, sorted.

        It is the share of the variance of predictions over public reference rows, whose columns are
        independent, that is due to the column. target: by default the first.
        """
        return self._effects.importance(target=target)

    def plot_survival(
        self,
        data: object,
        target: str | None = None,
        *,
        labels: Sequence[str] | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw the survival curves of a table's rows with their uncertainty; return the Axes.

        target: a time to an event, by default the only one. labels: one for each row.
        """
        name = self._only((TimeToEvent,), "time to an event", target)
        own = self._outcome(data, name)
        curves, unit = own.survival, own.target.unit
        return survival.draw(
            curves.edges.tolist(),
            curves.mean,
            variances=curves.variance,
            title=name,
            unit=unit,
            labels=labels,
            ax=ax,
        )

    def _read(self, data: object) -> Iterator[Records]:
        stream = SchemaStream(open_table(data), self.schema)
        return read_in_pieces(self.schema, stream, training=False)
