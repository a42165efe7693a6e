"""Predictions as JSON: the request has a table as records or columns, the answer exact floats.

Requests are read strictly: unknown fields, duplicate fields, NaN and Infinity are refused (a
missing cell is null). An error lists all problems of the table, by column, never with a value
(`kernels.tables.records`). Columns that the model does not know are ignored there.

In answers an infinite end of an interval is null, because JSON has no infinity. Ends are infinite
if there are too few calibration rows for the level. A median beyond the last edge is null, too.
"""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Annotated, Any, Self

from pydantic import Field, WithJsonSchema, model_validator
from torch import Tensor

from kernels.errors import (
    EmptyTable,
    MissingColumn,
    MissingValue,
    PredictionError,
    TableError,
    TableRefused,
)
from kernels.model.methods import METHODS
from kernels.model.prediction import Interval, Predictions
from kernels.outcomes.named_parts import NamedPart
from kernels.outcomes.predictions import OutcomePrediction
from kernels.scores.recalibration import ENOUGH
from kernels.tables.checked_rows import exposure_columns
from kernels.tables.problems import ROWS_SHOWN
from kernels.tables.records import Records
from kernels.tables.schema import Schema
from kernels.tables.targets import Binary, Classes, Count, TimeToEvent, kind_of
from service.http.request_models import RequestModel, read_table_json
from service.prediction.json_answers import Ensemble, Kind
from service.prediction.outcome_parts import CONFORMAL, intervals_of, levels_of, parts_of, sets_of
from service.prediction.prediction import Answer

Level = Annotated[float, Field(gt=0, lt=1)]


_CELL = {"type": ["number", "string", "boolean", "null"]}
# The model's schema checks rows and cells, and names the column of each problem.
_Row = Annotated[Any, WithJsonSchema({"type": "object", "additionalProperties": _CELL})]
_Cells = Annotated[Any, WithJsonSchema({"type": "array", "items": _CELL})]

METHOD: Any = Field(
    default=None,
    max_length=100,
    description="One of the model's prediction methods. Default: the model's first, which is "
    "fedbnr if the model has the global linear layer.",
    json_schema_extra={"anyOf": [{"type": "string", "enum": list(METHODS)}, {"type": "null"}]},
    examples=[METHODS[0]],
)
ENSEMBLE: Any = Field(
    default=None,
    description="How a method that combines many sites' predictions is computed. distilled "
    "(default): by the model's student network. open: from the unmasked samples of the hospitals "
    "that currently share them.",
)
KIND: Any = Field(
    default=None,
    description="conformal: valid for any distribution of the residuals; the default of fedbnr. "
    "student_t: from the calibrated distribution; the default of fedbnr with fewer than "
    f"{ENOUGH} rows for calibration. gaussian: from the method's mean and variance; "
    "the only kind of the other methods. Targets that are not real numbers have conformal sets and "
    "intervals only.",
)


class PredictRequest(RequestModel):
    """A table to predict: `records` or `columns`, not both."""

    model: str = Field(description="The id or an alias of a model.", examples=["stay"])
    records: list[_Row] | None = Field(
        default=None,
        description="One object for each row, with a cell for each feature; null if it is missing.",
        examples=[[{"age": 61, "lactate": None, "ward": "medical"}]],
    )
    columns: dict[str, _Cells] | None = Field(
        default=None,
        description="One list for each feature, all of the same length.",
    )
    intervals: list[Level] = Field(
        default=[],
        max_length=20,
        description="Levels of central intervals of real numbers and counts, and of sets of a yes "
        "or no and of classes.",
        examples=[[0.9]],
    )
    interval_kind: Kind | None = KIND
    method: str | None = METHOD
    ensemble: Ensemble | None = ENSEMBLE

    @model_validator(mode="after")
    def _one_table(self) -> Self:
        if (self.records is None) == (self.columns is None):
            raise ValueError("exactly one of records and columns must be set")
        return self

    @property
    def rows(self) -> int:
        """The number of rows; for columns of different lengths, the largest."""
        if self.columns is None:
            return len(self.records or ())
        return max((len(c) for c in self.columns.values() if isinstance(c, list)), default=0)

    def table(self, schema: Schema) -> Mapping[str, object]:
        """Return the table as columns."""
        return _columns(schema, self.records) if self.columns is None else self.columns


def read(body: bytes) -> PredictRequest:
    """Read a request from an untrusted body."""
    return read_table_json(PredictRequest, body)


def write(answer: Answer, *, intervals: list[float], kind: str | None) -> bytes:
    """Return an answer as JSON in the form of `PredictResponse`, with exact floats."""
    predictions, withheld = answer.predictions, answer.withheld
    real = _means(predictions)
    if answer.variance_of is not None:
        _add_variances(real, predictions, intervals, kind)
        for target in real:
            target["variance_of"] = answer.variance_of
    levels = levels_of(intervals, kind)
    targets = [
        real[own] if isinstance(own, int) else _outcome(own, levels, withheld=withheld is not None)
        for own in answer.in_order()
    ]
    plain = {
        "model": answer.model_id,
        "method": predictions.method,
        "ensemble": answer.ensemble,
        "members": answer.members,
        "cohort": answer.cohort,
        "rows": len(predictions),
        "targets": targets,
        "unpredicted": list(answer.unpredicted),
        "extrapolates": predictions.extrapolates.tolist(),
        "withheld": withheld and {"code": withheld.code, "detail": str(withheld)},
    }
    try:
        return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode()
    except ValueError as error:
        raise _not_finite() from error


def check_finite(predictions: Predictions) -> None:
    """Refuse predictions that are NaN or infinite."""
    of_outcomes = [
        part.values
        for own in predictions.outcomes
        for part in parts_of(own, withheld=False)
        if not part.may_be_infinite
    ]
    for values in (predictions.mean, predictions.variance, *of_outcomes):
        if not values.isfinite().all():
            raise _not_finite()


def _not_finite() -> PredictionError:
    return PredictionError(
        "the model has no finite prediction for these rows: they are too far from its training "
        "data; check the units of the columns"
    )


def _means(predictions: Predictions) -> list[dict[str, Any]]:
    names = "variance", "variance_of", "latent_variance", "noise_variance", "intervals"
    unknown = dict.fromkeys(names)
    return [
        {"name": target.name, "kind": "real", "unit": target.unit, "mean": mean, **unknown}
        for target, mean in zip(predictions.targets, predictions.mean.mT.tolist(), strict=True)
    ]


def _add_variances(
    targets: list[dict[str, Any]], predictions: Predictions, levels: list[float], kind: str | None
) -> None:
    if not targets:
        return
    kind = predictions.interval_kind if kind is None else kind
    intervals = [(level, predictions.interval(level, kind)) for level in levels]
    for position, (target, variance) in enumerate(
        zip(targets, predictions.variance.mT.tolist(), strict=True)
    ):
        target["variance"] = variance
        target["intervals"] = [
            {"level": level, "kind": kind, **_ends(interval, position)}
            for level, interval in intervals
        ]
    if predictions.divided is not None:
        latent, noise = predictions.divided
        for target, own, one in zip(targets, latent.mT.tolist(), noise.tolist(), strict=True):
            target["latent_variance"] = own
            target["noise_variance"] = [one] * len(predictions)


_UNKNOWN: Mapping[str, tuple[str, ...]] = {
    "binary": ("variance", "latent_mean", "latent_variance"),
    "classes": ("variance", "latent_mean", "latent_variance"),
    "count": ("variance", "expectation_variance", "latent_mean", "latent_variance", "intervals"),
    "time_to_event": ("variance", "latent_mean", "latent_variance", "survival", "median"),
}
"""What is null if variances are withheld."""


def _outcome(
    prediction: OutcomePrediction, levels: Sequence[float], *, withheld: bool
) -> dict[str, Any]:
    target = prediction.target
    kind, parts = kind_of(target), parts_of(prediction, withheld=withheld)
    plain: dict[str, Any] = {"name": target.name, "kind": kind, "unit": target.unit}
    plain |= dict.fromkeys(_UNKNOWN[kind])
    by_row = isinstance(target, TimeToEvent)
    found = {part.name: _plain(part, by_row=by_row) for part in parts}
    if isinstance(target, Binary):
        plain["event"] = target.event
    if isinstance(target, Binary | Classes):
        plain["sets"] = [
            {"level": level, "sets": _names(target.levels, own)}
            for level, own in sets_of(prediction, levels)
        ]
    if isinstance(target, Count) and not withheld:
        plain["intervals"] = [
            {"level": level, "kind": CONFORMAL, **_ends(own, 0)}
            for level, own in intervals_of(prediction, levels, withheld=withheld)
        ]
    if isinstance(target, TimeToEvent):
        plain |= {"horizon": target.risk_at, "risk": found["mean"]}
        if not withheld:
            curves = {"mean": found.pop("survival"), "variance": found.pop("survival_variance")}
            found["survival"] = {"edges": list(target.intervals), **curves}
            found["median"] = [each if math.isfinite(each) else None for each in found["median"]]
    return plain | found


def _names(levels: Sequence[str], sets: Tensor) -> list[list[str]]:
    """Return the names of the levels in each row's set."""
    return [list(compress(levels, row)) for row in sets.tolist()]


def _plain(part: NamedPart, *, by_row: bool) -> Any:
    if not part.columns or by_row:
        return part.values.tolist()
    return dict(zip(part.columns, part.values.mT.tolist(), strict=True))


def _ends(interval: Interval, target: int) -> dict[str, list[float | None]]:
    return {
        name: [end if math.isfinite(end) else None for end in ends[:, target].tolist()]
        for name, ends in interval._asdict().items()
    }


def _columns(schema: Schema, records: list[Any] | None) -> Mapping[str, object]:
    """Turn records into columns; each record must have every column of the schema."""
    if not records:
        raise EmptyTable("the table has no rows; pass at least one")
    names = [column.name for column in schema.features]
    names += [name for name in exposure_columns(schema) if _has(records, name)]
    try:
        return {name: [record[name] for record in records] for name in names}
    except (KeyError, TypeError, IndexError):
        raise TableRefused(_problems(schema, names, records)) from None


def _has(records: list[Any], name: str) -> bool:
    """Return whether any record has a cell that records need not have."""
    return any(isinstance(record, dict) and name in record for record in records)


def _problems(schema: Schema, names: list[str], records: list[Any]) -> list[TableError]:
    """Return the problems of records of which some lack a column or are not objects."""
    strange = [row for row, record in enumerate(records) if not isinstance(record, dict)]
    if strange:
        return [
            TableError(
                f"{_counted(strange, records)} are not JSON objects; pass one object for each row"
            )
        ]
    lacking = {
        name: [row for row, record in enumerate(records) if name not in record] for name in names
    }
    problems: list[TableError] = [
        MissingColumn(
            name,
            f"{_counted(rows, records)} do not have it; add it, with null for a missing cell",
            rows=len(rows),
        )
        for name, rows in lacking.items()
        if 0 < len(rows) < len(records)
    ]
    partial = {problem.column for problem in problems if isinstance(problem, MissingColumn)}
    try:
        Records.for_prediction(
            schema,
            {
                name: [record.get(name) for record in records]
                for name, rows in lacking.items()
                if len(rows) < len(records)
            },
        )
    except TableRefused as refused:
        problems += [
            each
            for each in refused.problems
            if not (isinstance(each, MissingValue) and each.column in partial)
        ]
    return problems


def _counted(rows: list[int], records: list[Any]) -> str:
    shown = ", ".join(map(str, rows[:ROWS_SHOWN])) + (" …" if len(rows) > ROWS_SHOWN else "")
    return f"{len(rows)} of {len(records)} records (counted from 0: {shown})"
