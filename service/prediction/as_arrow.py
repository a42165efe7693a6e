"""Predictions as Arrow streams, for tables with many rows.

Request: a column for each feature, of numbers, text or categories, with null for a missing cell;
other columns are ignored, but must not be nested. The stream has no compression and no custom
metadata (`service.prediction.arrow_messages`). Model, method and intervals are in the query, with
the names of the JSON fields.

Response: for each real target `<target>.mean`, `.variance`, `.latent_variance`, `.noise_variance`,
and `.lower.<level>` and `.upper.<level>` for each interval, infinite for an unbounded end; and for
each row `extrapolates`. Methods other than fedbnr have no `.latent_variance` and `.noise_variance`.

For any other target `<target>.<part>` for each of its parts (`kernels.outcomes.named_parts`):
`.p.<level>` for probabilities, `.mean.<level>` and so on for classes, `.survival.<edge>` and so on
at the edges of a time to an event. A median is infinite beyond the last edge. For each interval's
level a count has `.lower.<level>` and `.upper.<level>`, and a yes or no and classes have
`.set.<level>.<name>` for each of their levels, true if it is in the row's set.

The schema's metadata has `model` (the model's id), `method`, `ensemble`, `members` and `cohort`, as
in the JSON answer, and `unpredicted`, a JSON list, if the method does not predict every target.
`variance_of` is row or average, as in the JSON answer; without it there are no variances. If those
of rows are withheld, the metadata has `withheld` and `withheld_detail`. A column's metadata has its
`unit`, and that of a risk its `horizon`.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.datastructures import QueryParams
from torch import Tensor

from kernels.outcomes.predictions import OutcomePrediction
from kernels.tables.arrow_cells import as_labels, as_numbers
from kernels.tables.checked_rows import exposure_columns
from kernels.tables.schema import Schema
from kernels.tables.targets import Binary, Classes, Target, TimeToEvent
from service.http.request_models import RequestModel
from service.prediction.arrow_stream import column_of, read_table, write_table
from service.prediction.as_json import ENSEMBLE, KIND, METHOD, Level, check_finite
from service.prediction.json_answers import Ensemble, Kind
from service.prediction.outcome_parts import intervals_of, levels_of, parts_of, sets_of
from service.prediction.prediction import Answer


class QueryOptions(RequestModel):
    """The fields of the query."""

    model: str
    intervals: list[Level] = Field(default=[], max_length=20)
    interval_kind: Kind | None = KIND
    method: str | None = METHOD
    ensemble: Ensemble | None = ENSEMBLE


class ArrowPredictRequest:
    """A prediction request with an Arrow table."""

    def __init__(self, table: pa.Table, options: QueryOptions) -> None:
        self.model, self.rows = options.model, table.num_rows
        self.intervals, self.interval_kind = options.intervals, options.interval_kind
        self.method, self.ensemble = options.method, options.ensemble
        self._table = table

    def table(self, schema: Schema) -> Mapping[str, object]:
        """Return those columns of the schema that the table has."""
        repeated = Counter(self._table.column_names)
        columns: dict[str, object] = {}
        labels = {feature.name for feature in schema.categorical}
        for name in (*(each.name for each in schema.features), *exposure_columns(schema)):
            if repeated[name] > 1:
                raise RequestValidationError(
                    [{"loc": ("body", name), "msg": "the table has several columns of this name"}]
                )
            if repeated[name]:
                read = as_labels if name in labels else as_numbers
                columns[name] = read(column_of(self._table, name))
        return columns


def read(body: bytes, query: QueryParams, *, most_rows: int) -> ArrowPredictRequest:
    """Read a request; neither its body nor its query is trusted."""
    plain: dict[str, object] = {}
    for name in query:
        given = query.getlist(name)
        # As in `?intervals=0.5&intervals=0.9`; other repeated fields become lists and are refused.
        listed = name == "intervals"
        plain[name] = [_number(each) for each in given] if listed else given[0]
        if not listed and len(given) > 1:
            plain[name] = given
    try:
        options = QueryOptions.model_validate(plain)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False, include_context=False)
        raise RequestValidationError(
            [{**each, "loc": ("query", *each["loc"])} for each in found]
        ) from None
    return ArrowPredictRequest(read_table(body, most_rows=most_rows), options)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def write(answer: Answer, *, intervals: list[float], kind: str | None) -> bytes:
    """Return an answer as an Arrow stream, with unrounded floats."""
    predictions, withheld = answer.predictions, answer.withheld
    check_finite(predictions)
    found: list[tuple[str, Tensor]] = [("mean", predictions.mean)]
    if answer.variance_of is not None:
        found += [("variance", predictions.variance)]
        if predictions.divided is not None:
            latent, noise = predictions.divided
            found += [("latent_variance", latent), ("noise_variance", noise.expand_as(latent))]
        for level in intervals if predictions.targets else ():
            ends = predictions.interval(level, kind)._asdict()
            found += [(f"{end}.{level:g}", values) for end, values in ends.items()]
    fields, arrays = [], []
    for own in answer.in_order():
        for column in (
            _real(predictions.targets[own], own, found)
            if isinstance(own, int)
            else _outcome(own, levels_of(intervals, kind), withheld=withheld is not None)
        ):
            values = pa.array(column.values.contiguous().numpy())
            fields.append(
                pa.field(column.name, values.type, nullable=False, metadata=column.metadata)
            )
            arrays.append(values)
    fields.append(pa.field("extrapolates", pa.bool_(), nullable=False))
    arrays.append(pa.array(predictions.extrapolates.numpy()))
    about = {"model": answer.model_id, "method": predictions.method}
    about |= {name: str(value) for name, value in answer.about.items()}
    if answer.unpredicted:
        about["unpredicted"] = json.dumps(answer.unpredicted, ensure_ascii=False)
    if answer.variance_of is not None:
        about["variance_of"] = answer.variance_of
    if withheld is not None:
        about |= {"withheld": withheld.code, "withheld_detail": str(withheld)}
    return write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields, about)))


class _Column(NamedTuple):
    name: str
    values: Tensor
    metadata: dict[str, str]


def _real(target: Target, column: int, found: list[tuple[str, Tensor]]) -> Iterator[_Column]:
    for name, values in found:
        yield _Column(f"{target.name}.{name}", values[:, column], {"unit": target.unit})


def _outcome(
    prediction: OutcomePrediction, levels: Sequence[float], *, withheld: bool
) -> Iterator[_Column]:
    target = prediction.target
    for part in parts_of(prediction, withheld=withheld):
        metadata = {"unit": part.unit}
        if isinstance(target, TimeToEvent) and part.name in ("mean", "variance"):
            metadata["horizon"] = f"{target.risk_at:g}"
        for name, values in part.by_column():
            yield _Column(f"{target.name}.{name}", values, metadata)
    names = target.levels if isinstance(target, Binary | Classes) else ()
    for level, sets in sets_of(prediction, levels):
        for name, values in zip(names, sets.mT, strict=True):
            yield _Column(f"{target.name}.set.{level:g}.{name}", values, {})
    for level, interval in intervals_of(prediction, levels, withheld=withheld):
        for end, values in interval._asdict().items():
            metadata = {"unit": target.unit}
            yield _Column(f"{target.name}.{end}.{level:g}", values[:, 0], metadata)
