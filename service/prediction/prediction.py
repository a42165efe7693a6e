"""Predictions for callers: who may ask, how much, and what of a small model is not said.

The predictive variance at a row tells how close the model's training rows are, so that of a model
of few rows tells whether this very row was among them (docs/threats.md, A16). Below the setting
`least_rows_for_variance` a caller gets means only: no variance, no interval, whose width is one,
and not the model itself. An admin and the members, who have the model, get everything. It is a
floor and no guarantee: how much a variance tells also depends on the kernel, and only noise added
in training bounds it. Where there was such noise, whatever is asked of the model is covered by it.
All of this holds for every method that the model predicts by; of an open ensemble, whose members
can be told from each other, what counts are the rows of the member that has the fewest.

Nothing here knows a format: tables come as columns by name, and answers are `Predictions`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from anyio import CapacityLimiter

from kernels.model.card_sections import DISTILLED
from kernels.model.methods import FEDBNR, committee_method
from kernels.model.model import Model, known
from kernels.model.prediction import Predictions
from kernels.tables.schema import Schema
from service import models
from service.context import Clock
from service.database.database import Database
from service.errors import NotFound, TableTooLong, VarianceWithheld
from service.http.access import ModelAccess
from service.http.rate_limits import RateLimits
from service.prediction import methods
from service.prediction.loaded_models import LoadedModels
from service.prediction.open_ensembles import OpenEnsembles
from service.settings import Settings


class TableRequest(Protocol):
    """A table to predict, in whatever format it came.

    method: one of the model's, by default its first. ensemble: of a method that makes many sites'
    predictions into one, the way; by default by a student.
    """

    @property
    def rows(self) -> int:
        """How many rows the table has."""
        ...

    @property
    def method(self) -> str | None:
        """By which of the model's methods."""
        ...

    @property
    def ensemble(self) -> str | None:
        """In which way many sites' predictions are made into one."""
        ...

    def table(self, schema: Schema, /) -> Mapping[str, object]:
        """Return the columns that a model's schema asks for, as far as they are there."""
        ...


@dataclass(frozen=True)
class Answer:
    """Predictions of the model that a name stood for, and why variances are withheld, if so.

    ensemble: in which way many sites' predictions were made into one. members, cohort: of the open
    way, how many hospitals are in it, and how many took part in the run.
    """

    model_id: str
    predictions: Predictions
    withheld: VarianceWithheld | None
    ensemble: str | None = None
    members: int | None = None
    cohort: int | None = None

    @property
    def about(self) -> dict[str, Any]:
        """What is said of the ensemble, as fields; nothing of `fedbnr`."""
        found = {name: getattr(self, name) for name in ("ensemble", "members", "cohort")}
        return {name: value for name, value in found.items() if value is not None}


class Predictor:
    """What predictions need: models in memory, and what each caller has asked for lately."""

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
        self._open = OpenEnsembles(database, settings.models_in_memory)
        self._rates = RateLimits(per_minute=settings.caller_rows_per_minute, clock=clock)
        self.threads = CapacityLimiter(os.cpu_count() or 1)
        """Predictions wait for each other here, and nothing else of the coordinator does."""

    def admit(self, access: ModelAccess) -> None:
        """Charge a request before anything is made of its body."""
        self._charge(access, 1)

    def answer(
        self,
        access: ModelAccess,
        name: str,
        wanted: TableRequest,
        *,
        version: str | None = None,
    ) -> Answer:
        """Predict a table by the model that an id or alias stands for now."""
        rows, most = wanted.rows, self._settings.max_predict_rows
        if rows > most:
            raise TableTooLong(
                f"The table has {rows} rows and one request may have {most}: send it in parts."
            )
        model_id, model = self.find(access, name, version=version)
        self._charge(access, rows - 1)
        serving = self._open.get(model_id, model) if wanted.ensemble == methods.OPEN else None
        method = wanted.method
        if wanted.ensemble is not None:
            method = committee_method(method)
        opened = None if serving is None else serving.ensemble
        if opened is not None:  # each member's networks are asked
            self._charge(access, rows * (len(opened.members) - 1))
        predictions = methods.predicted(
            model, wanted.table(model.schema), method=method, ensemble=opened
        )
        self._count(rows)
        count = known(model.statistics, "linear").count if opened is None else opened.least_rows
        refusal = withheld(access, self._settings, rows=count, private=model.privacy is not None)
        if serving is None:
            way = None if predictions.method == FEDBNR else DISTILLED
            return Answer(model_id, predictions, refusal, way)
        members = len(serving.ensemble.members)
        return Answer(model_id, predictions, refusal, methods.OPEN, members, serving.cohort)

    def drop(self, model_id: str) -> None:
        """Give the memory of a deleted model back."""
        self._models.drop(model_id)
        self._open.forget(model_id)

    def close(self, session_id: str) -> None:
        """Give the memory of a session's open ensembles back: someone may have withdrawn."""
        self._open.drop(session_id)

    def find(
        self, access: ModelAccess, name: str, *, version: str | None = None
    ) -> tuple[str, Model]:
        """Give the model that an id or alias stands for now, if it is this version of it."""
        with self._database.reading() as connection:
            model_id = models.resolve(connection, name, access)
            if version not in (None, model_id):
                raise NotFound(f"The model {name!r:.120} has no such version.")
            model = self._models.get(model_id, lambda: models.load(connection, model_id).model)
        return model_id, model

    def _charge(self, access: ModelAccess, rows: int) -> None:
        if access.caller_id is not None and rows > 0:
            self._rates.charge(access.caller_id, rows)


def withheld(
    access: ModelAccess, settings: Settings, *, rows: int, private: bool
) -> VarianceWithheld | None:
    """Say why the variances of a model of so many training rows are not for this one, if so.

    private: its training was differentially private.
    """
    least = settings.least_rows_for_variance
    if access.caller_id is None or rows >= least or private:
        return None
    return VarianceWithheld(
        f"This model was trained on fewer than {least} rows, and its variances would tell which "
        "rows those were: callers get means only. Who runs the coordinator can change that limit."
    )
