"""Predictions as JSON: the request has a table as records or columns, the answer exact floats.

Requests are read strictly: unknown fields, duplicate fields, NaN and Infinity are refused (a
missing cell is null). An error lists all problems of the table, by column, never with a value
(`kernels.tables.records`). Columns that the model does not know are ignored there.

In answers an infinite end of an interval is null, because JSON has no infinity. Ends are infinite
if there are too few calibration rows for the level. So is a median beyond the last edge.

Each target is an object with the numbers of its kind (`service.prediction.outcome_parts`): a list
with one number for each row, an object with such a list for each level of classes, or, at the edges
of a time to an event, a list of numbers for each row.
"""

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

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
from kernels.outcomes.predictions import OutcomePrediction
from kernels.tables.problems import ROWS_SHOWN
from kernels.tables.records import Records, exposure_columns
from kernels.tables.schema import Schema
from kernels.tables.targets import Binary, TimeToEvent, kind_of
from service.http.request_models import RequestModel, read_table_json
from service.prediction.outcome_parts import OutcomePart, must_be_finite, parts_of
from service.prediction.prediction import Answer

Numbers = list[float]
ByLevel = dict[str, Numbers]
ByRow = list[Numbers]
Kind = Literal["conformal", "student_t", "gaussian"]
Level = Annotated[float, Field(gt=0, lt=1)]


METHOD: Any = Field(
    default=None,
    max_length=100,
    description="One of the model's prediction methods. Default: the model's first, which is "
    "fedbnr if the model has the global linear layer.",
    json_schema_extra={"anyOf": [{"type": "string", "enum": list(METHODS)}, {"type": "null"}]},
    examples=[METHODS[0]],
)
Ensemble = Literal["distilled", "open"]
ENSEMBLE: Any = Field(
    default=None,
    description="How a method that combines many sites' predictions is computed. distilled "
    "(default): by the model's student network. open: from the unmasked samples of the hospitals "
    "that currently share them.",
)
KIND: Any = Field(
    default=None,
    description="conformal: valid for any distribution of the residuals; the default of fedbnr. "
    "student_t: from the calibrated distribution. gaussian: from the method's mean and variance; "
    "the only kind of the other methods.",
)


class PredictRequest(RequestModel):
    """A table to predict: `records` or `columns`, not both."""

    model: str = Field(description="The id or an alias of a model.", examples=["stay"])
    records: list[Any] | None = Field(
        default=None,
        description="One object for each row, with a cell for each feature; null if it is missing.",
        json_schema_extra={"items": {"type": "object"}},
        examples=[[{"age": 61, "lactate": None, "ward": "medical"}]],
    )
    columns: dict[str, Any] | None = Field(
        default=None,
        description="One list for each feature, all of the same length.",
        json_schema_extra={"additionalProperties": {"type": "array"}},
    )
    intervals: list[Level] = Field(
        default=[],
        max_length=20,
        description="Levels of central intervals of real numbers.",
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


class IntervalOut(BaseModel):
    """A central interval for each row; null for an unbounded end."""

    level: float
    kind: Kind
    lower: list[float | None]
    upper: list[float | None]


class RealOut(BaseModel):
    """A real number's predictions in its unit; if variances are withheld, they are null.

    Methods other than fedbnr have one variance; their latent and noise variance are null.
    """

    name: str
    kind: Literal["real"]
    unit: str
    mean: Numbers
    variance: Numbers | None = Field(
        description="Variance of a new observation. fedbnr: latent_variance + noise_variance, "
        "calibrated. Other methods: uncertainty of the combined sites and noise together, not "
        "recalibrated."
    )
    latent_variance: Numbers | None
    noise_variance: Numbers | None
    intervals: list[IntervalOut] | None


class BinaryOut(BaseModel):
    """Probabilities of a yes or no; if variances are withheld, all but the first are null."""

    name: str
    kind: Literal["binary"]
    unit: str
    event: str = Field(description="The level whose probability is the mean.")
    mean: Numbers
    probabilities: ByLevel
    variance: Numbers | None = Field(description="Of the probability, which is uncertain.")
    latent_mean: Numbers | None = Field(description="Of the logit of the probability.")
    latent_variance: Numbers | None


class ClassesOut(BaseModel):
    """Probabilities of classes; if variances are withheld, all but the first are null."""

    name: str
    kind: Literal["classes"]
    unit: str
    mean: ByLevel
    probabilities: ByLevel
    variance: ByLevel | None = Field(description="Of the probabilities, which are uncertain.")
    latent_mean: ByLevel | None = Field(description="Of each class's logit.")
    latent_variance: ByLevel | None


class CountOut(BaseModel):
    """Expected counts; if variances are withheld, everything else is null."""

    name: str
    kind: Literal["count"]
    unit: str
    mean: Numbers = Field(description="The expected count, for the table's exposures or for 1.")
    variance: Numbers | None = Field(description="Of a new count.")
    expectation_variance: Numbers | None = Field(description="Of the expected count.")
    latent_mean: Numbers | None = Field(description="Of the logarithm of the rate.")
    latent_variance: Numbers | None


class SurvivalOut(BaseModel):
    """The probability that the event comes later than each of the edges, by row."""

    edges: Numbers
    mean: ByRow
    variance: ByRow


class TimeToEventOut(BaseModel):
    """The risk by the horizon, and survival; if variances are withheld, only the risk."""

    name: str
    kind: Literal["time_to_event"]
    unit: str
    horizon: float
    mean: Numbers = Field(description="The risk: the probability of the event by the horizon.")
    risk: Numbers = Field(description="The same as the mean.")
    variance: Numbers | None = Field(description="Of the risk, which is uncertain.")
    latent_mean: ByRow | None = Field(description="Of the logits of the hazards before each edge.")
    latent_variance: ByRow | None
    survival: SurvivalOut | None
    median: list[float | None] | None = Field(description="Null for a row beyond the last edge.")


TargetOut = Annotated[
    RealOut | BinaryOut | ClassesOut | CountOut | TimeToEventOut, Field(discriminator="kind")
]


class WithheldOut(BaseModel):
    """Why the answer has means only."""

    code: str
    detail: str


class PredictResponse(BaseModel):
    """The predictions, in the order of the request's rows."""

    model: str = Field(description="The model's id, also if the request named an alias.")
    method: str = Field(description="The method that was used.")
    ensemble: Ensemble | None = Field(
        description="How the sites' predictions were combined; null for fedbnr."
    )
    members: int | None = Field(
        description="Open ensemble: how many hospitals are in it now; otherwise null."
    )
    cohort: int | None = Field(
        description="Open ensemble: how many hospitals took part in the run; otherwise null."
    )
    rows: int
    targets: list[TargetOut] = Field(description="In the order of the model's schema.")
    unpredicted: list[str] = Field(
        description="Targets of the model that the method does not predict: only fedbnr predicts "
        "outcomes, that is, targets that are not real numbers."
    )
    extrapolates: list[bool] = Field(
        description="For each row: whether any of its numbers is outside its column's bounds."
    )
    withheld: WithheldOut | None


def read(body: bytes) -> PredictRequest:
    """Read a request from an untrusted body."""
    return read_table_json(PredictRequest, body)


def write(answer: Answer, *, intervals: list[float], kind: str | None) -> bytes:
    """Return an answer as JSON in the form of `PredictResponse`, with exact floats."""
    predictions, withheld = answer.predictions, answer.withheld
    real = _means(predictions)
    if withheld is None:
        _add_variances(real, predictions, intervals, kind)
    targets = [
        real[own] if isinstance(own, int) else _outcome(own, withheld=withheld is not None)
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
        if must_be_finite(part)
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
    unknown = dict.fromkeys(("variance", "latent_variance", "noise_variance", "intervals"))
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
    "count": ("variance", "expectation_variance", "latent_mean", "latent_variance"),
    "time_to_event": ("variance", "latent_mean", "latent_variance", "survival", "median"),
}
"""What is null if variances are withheld."""


def _outcome(prediction: OutcomePrediction, *, withheld: bool) -> dict[str, Any]:
    target = prediction.target
    kind, parts = kind_of(target), parts_of(prediction, withheld=withheld)
    plain: dict[str, Any] = {"name": target.name, "kind": kind, "unit": target.unit}
    plain |= dict.fromkeys(_UNKNOWN[kind])
    by_row = isinstance(target, TimeToEvent)
    found = {part.name: _plain(part, by_row=by_row) for part in parts}
    if isinstance(target, Binary):
        plain["event"] = target.event
    if isinstance(target, TimeToEvent):
        plain |= {"horizon": target.risk_at, "risk": found["mean"]}
        if not withheld:
            curves = {"mean": found.pop("survival"), "variance": found.pop("survival_variance")}
            found["survival"] = {"edges": list(target.intervals), **curves}
            found["median"] = [each if math.isfinite(each) else None for each in found["median"]]
    return plain | found


def _plain(part: OutcomePart, *, by_row: bool) -> Any:
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
