"""Predictions as Arrow streams, for tables with many rows.

Request: a column for each feature, of numbers, text or categories, with null for a missing cell;
other columns are ignored, but must not be nested. The stream has no compression and no custom
metadata (`service.prediction.arrow_messages`). Model, method and intervals are in the query, with
the names of the JSON fields.

Response: for each target `<target>.mean`, `.variance`, `.latent_variance`, `.noise_variance`, and
`.lower.<level>` and `.upper.<level>` for each interval, infinite for an unbounded end; and for each
row `extrapolates`. Methods other than fedbnr have no `.latent_variance` and `.noise_variance`. The
schema's metadata has `model` (the model's id), `method`, `ensemble`, `members` and `cohort`, as in
the JSON answer. If variances are withheld, their columns are absent and the metadata has `withheld`
and `withheld_detail`. A column's metadata has its `unit`.
"""

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.datastructures import QueryParams
from torch import Tensor

from kernels.tables.arrow_cells import as_labels, as_numbers
from kernels.tables.schema import Numeric, Schema
from service.http.request_models import RequestModel
from service.prediction.arrow_stream import column_of, read_table, write_table
from service.prediction.as_json import ENSEMBLE, KIND, METHOD, Ensemble, Kind, Level, check_finite
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
        for feature in schema.features:
            if repeated[feature.name] > 1:
                raise RequestValidationError(
                    [
                        {
                            "loc": ("body", feature.name),
                            "msg": "the table has several columns of this name",
                        }
                    ]
                )
            if repeated[feature.name]:
                read = as_numbers if isinstance(feature, Numeric) else as_labels
                columns[feature.name] = read(column_of(self._table, feature.name))
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
    if withheld is None:
        found += [("variance", predictions.variance)]
        if predictions.divided is not None:
            latent, noise = predictions.divided
            found += [("latent_variance", latent), ("noise_variance", noise.expand_as(latent))]
        for level in intervals:
            ends = predictions.interval(level, kind)._asdict()
            found += [(f"{end}.{level:g}", values) for end, values in ends.items()]
    fields, arrays = [], []
    for position, target in enumerate(predictions.targets):
        for name, values in found:
            metadata = {"unit": target.unit}
            fields.append(
                pa.field(f"{target.name}.{name}", pa.float64(), nullable=False, metadata=metadata)
            )
            arrays.append(pa.array(values[:, position].contiguous().numpy()))
    fields.append(pa.field("extrapolates", pa.bool_(), nullable=False))
    arrays.append(pa.array(predictions.extrapolates.numpy()))
    about = {"model": answer.model_id, "method": predictions.method}
    about |= {name: str(value) for name, value in answer.about.items()}
    if withheld is not None:
        about |= {"withheld": withheld.code, "withheld_detail": str(withheld)}
    return write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields, about)))
