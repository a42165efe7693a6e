"""Predictions for callers: access, rate limits, and which variances an answer has.

What a caller may have of a model's variances is decided by `service.prediction.variances`. For an
open ensemble, whose members can be told apart, the rows of its smallest member count.

This module is independent of formats: tables are columns by name, and answers are `Predictions`.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from anyio import CapacityLimiter

from kernels.ensembles.distilled import Method
from kernels.model.average_variance import with_average_variance
from kernels.model.card_sections import DISTILLED
from kernels.model.methods import FEDBNR, committee_method
from kernels.model.model import Model, training_rows
from kernels.model.prediction import Predictions
from kernels.outcomes.predictions import OutcomePrediction
from kernels.tables.schema import Schema
from service import models
from service.context import Clock
from service.database.database import Database
from service.errors import NotFound, VarianceWithheld
from service.http.access import ModelAccess
from service.http.rate_limits import RateLimits
from service.prediction import methods
from service.prediction.loaded_models import LoadedModels
from service.prediction.open_ensembles import OpenEnsembles
from service.prediction.row_limit import check_rows
from service.prediction.variances import (
    VarianceOf,
    allowed,
    allowed_of_method,
    allowed_of_networks,
)
from service.settings import Settings


class TableRequest(Protocol):
    """A prediction request in any format.

    method: one of the model's methods, by default its first. ensemble: how a method that combines
    many sites' predictions is computed, by default by a student network.
    """

    @property
    def rows(self) -> int:
        """The number of rows of the table."""
        ...

    @property
    def method(self) -> str | None:
        """The requested method."""
        ...

    @property
    def ensemble(self) -> str | None:
        """How the sites' predictions are to be combined."""
        ...

    def table(self, schema: Schema, /) -> Mapping[str, object]:
        """Return those columns of a model's schema that the table has."""
        ...


@dataclass(frozen=True)
class Answer:
    """Predictions of a model, of what their variances are, and why they are not the rows' own.

    schema: of the model. variance_of: None if variances are withheld. withheld: None if they are
    those of the rows. ensemble: how the sites' predictions were combined. members, cohort: for
    an open ensemble, how many hospitals are in it and how many took part in the run.
    """

    model_id: str
    schema: Schema
    predictions: Predictions
    variance_of: VarianceOf | None
    withheld: VarianceWithheld | None
    ensemble: str | None = None
    members: int | None = None
    cohort: int | None = None

    @property
    def unpredicted(self) -> tuple[str, ...]:
        """The targets that the method does not predict: only `fedbnr` predicts outcomes."""
        there = {target.name for target in self.predictions.targets}
        there |= {own.target.name for own in self.predictions.outcomes}
        return tuple(own.name for own in self.schema.targets if own.name not in there)

    def in_order(self) -> Iterator[int | OutcomePrediction]:
        """Yield, in the order of the schema, each predicted target.

        A real target is yielded as its column in the predictions, an outcome as its prediction.
        """
        columns = {target.name: i for i, target in enumerate(self.predictions.targets)}
        others = {own.target.name: own for own in self.predictions.outcomes}
        for target in self.schema.targets:
            if target.name in columns:
                yield columns[target.name]
            elif target.name in others:
                yield others[target.name]

    @property
    def about(self) -> dict[str, Any]:
        """The fields that describe the ensemble; empty for other methods."""
        found = {name: getattr(self, name) for name in ("ensemble", "members", "cohort")}
        return {name: value for name, value in found.items() if value is not None}


class Predictor:
    """Computes predictions: holds models in memory and the rate limits of callers."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        clock: Clock,
        *,
        count: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._count = count
        self._settings = settings
        self._database = database
        self._models = LoadedModels(settings.models_in_memory)
        self._certified: set[str] = set()
        """Ids of models that are known to have a certificate."""
        self._open = OpenEnsembles(database, settings.models_in_memory)
        self._rates = RateLimits(per_minute=settings.caller_rows_per_minute, clock=clock)
        self.threads = CapacityLimiter(os.cpu_count() or 1)
        """Limits how many predictions run at once, without slowing other requests."""

    def admit(self, access: ModelAccess) -> None:
        """Charge the rate limit for a request before its body is read."""
        self._charge(access, 1)

    def answer(
        self,
        access: ModelAccess,
        name: str,
        wanted: TableRequest,
        *,
        version: str | None = None,
    ) -> Answer:
        """Predict a table with the model that an id or alias refers to now."""
        rows = wanted.rows
        check_rows(rows, self._settings.max_predict_rows)
        model_id, model = self.find(access, name, version=version)
        self._charge(access, rows - 1)
        serving = self._open.get(model_id, model) if wanted.ensemble == methods.OPEN else None
        method = wanted.method
        if wanted.ensemble is not None:
            method = committee_method(method)
        opened = None if serving is None else serving.ensemble
        if opened is not None:  # each member's networks predict
            self._charge(access, rows * (len(opened.members) - 1))
        predictions = methods.predicted(
            model, wanted.table(model.schema), method=method, ensemble=opened
        )
        self._count(rows)
        networks = model.networks_of(predictions.method)
        if predictions.method == FEDBNR:
            may = allowed(access, self._settings, model)
        elif networks is not None:
            may = allowed_of_networks(access, self._settings, model, networks)
        else:
            count = training_rows(model) if opened is None else opened.least_rows
            may = allowed_of_method(access, self._settings, model, rows=count)
        if may.variance_of is VarianceOf.AVERAGE:
            predictions = with_average_variance(model, predictions)
        answer = Answer(model_id, model.schema, predictions, may.variance_of, may.refusal)
        if serving is None:
            way = DISTILLED if predictions.method in tuple(Method) else None
            return replace(answer, ensemble=way)
        members = len(serving.ensemble.members)
        return replace(answer, ensemble=methods.OPEN, members=members, cohort=serving.cohort)

    def drop(self, model_id: str) -> None:
        """Drop a deleted model from memory."""
        self._certified.discard(model_id)
        self._models.drop(model_id)
        self._open.forget(model_id)

    def close(self, session_id: str) -> None:
        """Drop a session's open ensembles from memory: a member may have withdrawn."""
        self._open.drop(session_id)

    def find(
        self, access: ModelAccess, name: str, *, version: str | None = None
    ) -> tuple[str, Model]:
        """Return id and model for an id or alias; `version`, if given, must be its current id."""
        with self._database.reading() as connection:
            model_id = models.resolve(connection, name, access)
            if version not in (None, model_id):
                raise NotFound(f"The model {name!r:.120} does not have this version.")
            if model_id not in self._certified and models.check_certified(connection, model_id):
                self._certified.add(model_id)
            model = self._models.get(model_id, lambda: models.load(connection, model_id).model)
        return model_id, model

    def _charge(self, access: ModelAccess, rows: int) -> None:
        if access.caller_id is not None and rows > 0:
            self._rates.charge(access.caller_id, rows)
