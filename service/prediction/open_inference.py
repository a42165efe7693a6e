"""Predictions in the Open Inference Protocol, version 2, for inference gateways.

A tensor for each feature: BYTES for a categorical one, FP64 for a numeric one, of shape [n] or
[n, 1], null for a missing cell. Outputs are `mean` and `variance`, FP64 of shape [n, C], with the
columns in the order of the model's metadata: one for each target, and one for each level of
classes. Of a target that is not a real number there is also `<target>.<part>` for each of its other
parts (`kernels.outcomes.named_parts`), of shape [n] or [n, k]; a median is null beyond the last
edge. The parameter `method` names one of the methods that the metadata lists, and is also in the
answer; methods other than fedbnr have the columns of real targets only, and the answer's parameter
`unpredicted` lists the others. If variances are withheld from a caller, a request for them is
refused, and a request without `outputs` returns means only.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

import torch
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, WithJsonSchema, model_validator
from torch import Tensor

from kernels.model.methods import methods_of
from kernels.model.model import Model
from kernels.model.prediction import predict_outcomes
from kernels.tables.checked_rows import exposure_columns
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import AnyTarget, Classes
from service.http.request_models import RequestModel, read_table_json
from service.prediction.as_json import check_finite
from service.prediction.json_answers import Ensemble
from service.prediction.outcome_parts import parts_of
from service.prediction.prediction import Answer
from service.prediction.variances import VarianceOf

Output = Annotated[str, Field(max_length=1000, examples=["mean"])]
Parameters = dict[str, str | int | float | bool]
Datatype = Literal[
    "BOOL", "BYTES", "FP16", "FP32", "FP64",
    "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64",
]  # fmt: skip


# A cell, or a row of one cell; the model's schema checks them.
_Element = Annotated[
    Any, WithJsonSchema({"type": ["number", "string", "boolean", "null", "array"], "maxItems": 1})
]


class TensorIn(RequestModel):
    """A column of the table."""

    name: str = Field(examples=["age"])
    shape: list[Annotated[int, Field(ge=0)]] = Field(min_length=1, max_length=2, examples=[[1]])
    datatype: Datatype = Field(examples=["FP64"])
    parameters: Parameters = Field(default={})
    data: list[_Element] = Field(examples=[[61]])

    @model_validator(mode="after")
    def _one_column(self) -> Self:
        if self.shape[1:] not in ([], [1]):
            raise ValueError("shape must be [rows] or [rows, 1]: a tensor is one column")
        if len(self.data) != self.shape[0]:
            raise ValueError("data must have as many elements as shape states")
        return self

    @property
    def cells(self) -> list[Any]:
        """The column's cells; rows that are lists of one element are unpacked."""
        rows = self.data
        nested = len(self.shape) == 2 and all(isinstance(r, list) and len(r) == 1 for r in rows)
        return [row[0] for row in rows] if nested else rows


class OutputIn(RequestModel):
    """A requested output, one of those that the model's metadata lists."""

    name: Output
    parameters: Parameters = Field(default={})


class InferIn(RequestModel):
    """A prediction request with tensors; without `outputs`, all available outputs are returned.

    Fields of `parameters`: `method`, one of the model's methods; `ensemble`, distilled or open.
    """

    id: str | None = Field(default=None, max_length=200)
    parameters: Parameters = Field(default={})
    inputs: list[TensorIn] = Field(min_length=1, max_length=10_000)
    outputs: list[OutputIn] = Field(default=[], max_length=10_000)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for each in (self.inputs, self.outputs):
            if any(count > 1 for count in Counter(tensor.name for tensor in each).values()):
                raise ValueError("the names of tensors must be unique")
        return self

    @property
    def rows(self) -> int:
        """The number of rows; for columns of different lengths, the largest."""
        return max(len(tensor.data) for tensor in self.inputs)

    @property
    def method(self) -> str | None:
        """The requested method."""
        return self._named("method")

    @property
    def ensemble(self) -> str | None:
        """How the sites' predictions are to be combined."""
        return self._named("ensemble")

    def _named(self, parameter: str) -> str | None:
        found = self.parameters.get(parameter)
        return None if found is None else str(found)

    @model_validator(mode="after")
    def _known_ensemble(self) -> Self:
        if self.ensemble not in (None, *get_args(Ensemble)):
            raise ValueError(f"parameters.ensemble must be {' or '.join(get_args(Ensemble))}")
        return self

    def table(self, _: Schema) -> Mapping[str, object]:
        """Return all columns by name."""
        return {tensor.name: tensor.cells for tensor in self.inputs}


class TensorOut(BaseModel):
    """The numbers of all rows, in row-major order: all columns of a row, then the next row."""

    name: str
    shape: list[int]
    datatype: Literal["FP64"] = "FP64"
    data: list[float | None] = Field(description="Null for a median beyond the last edge.")


class InferOut(BaseModel):
    """The predictions; `model_version` is the model's id, also if the request named an alias."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: Parameters = Field(
        description="`method`: the method that was used. `ensemble`: how the sites' predictions "
        "were combined. `members`, `cohort`: hospitals in the open ensemble and in the run. "
        "`unpredicted`: a JSON list of the targets that the method does not predict. "
        "`variance_of`: row or average, of what the variances are; absent if there are none. "
        "`withheld`: the code of the reason if they are not those of the rows."
    )
    outputs: list[TensorOut]


class TensorMetadata(BaseModel):
    """A tensor without its numbers."""

    name: str
    datatype: Datatype
    shape: list[int]


class ModelMetadata(BaseModel):
    """The input and output tensors of a model.

    `targets`, `columns` (those of `mean` and `variance`) and `methods` in `parameters` are JSON
    lists; the first method is the default.
    """

    name: str
    versions: list[str]
    platform: str = "veilgp"
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    parameters: Parameters


def read(body: bytes) -> InferIn:
    """Read a request from an untrusted body."""
    return read_table_json(InferIn, body)


def write(name: str, answer: Answer, request: InferIn) -> bytes:
    """Return an answer as JSON in the form of `InferOut`, with exact floats."""
    predictions, withheld = answer.predictions, answer.withheld
    check_finite(predictions)
    wanted = [output.name for output in request.outputs]
    found = _outputs(answer)
    unknown = [each for each in wanted if each not in found]
    if unknown:
        if withheld is not None and set(unknown) <= set(_outputs(_with_all(answer))):
            raise withheld
        there = ", ".join(found)
        raise RequestValidationError(
            [{"loc": ("body", "outputs"), "msg": f"the outputs of this answer are {there}"}]
        )
    plain: dict[str, Any] = {
        "model_name": name,
        "model_version": answer.model_id,
        **({} if request.id is None else {"id": request.id}),
        "parameters": {
            "method": predictions.method,
            **answer.about,
            **({} if not answer.unpredicted else {"unpredicted": _listed(answer.unpredicted)}),
            **({} if answer.variance_of is None else {"variance_of": answer.variance_of}),
            **({} if withheld is None else {"withheld": withheld.code}),
        },
        "outputs": [
            {
                "name": each,
                "shape": list(found[each].values.shape),
                "datatype": "FP64",
                "data": found[each].data(),
            }
            for each in wanted or found
        ],
    }
    return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode()


class _Tensor(NamedTuple):
    values: Tensor
    finite: bool = True

    def data(self) -> list[float | None]:
        flat: list[float | None] = self.values.flatten().tolist()
        return flat if self.finite else [None if each == math.inf else each for each in flat]


def _with_all(answer: Answer) -> Answer:
    """Return an answer as an admin gets it, of which only the names of outputs are looked at."""
    return replace(answer, variance_of=VarianceOf.ROW, withheld=None)


def _outputs(answer: Answer) -> dict[str, _Tensor]:
    """Return all outputs of an answer by name."""
    predictions, withheld = answer.predictions, answer.withheld is not None
    means, variances, others = [], [], {}
    for own in answer.in_order():
        if isinstance(own, int):
            means.append(predictions.mean[:, own, None])
            variances.append(predictions.variance[:, own, None])
            continue
        means.append(own.mean.reshape(len(own), -1))
        variances.append(own.variance.reshape(len(own), -1))
        for part in parts_of(own, withheld=withheld):
            if part.name not in ("mean", "variance"):
                name = f"{own.target.name}.{part.name}"
                others[name] = _Tensor(part.values, finite=not part.may_be_infinite)
    both = {"mean": _Tensor(torch.cat(means, 1))}
    if not withheld or (answer.variance_of is not None and not predictions.outcomes):
        both["variance"] = _Tensor(torch.cat(variances, 1))
    return both | others


def _listed(names: Iterable[str]) -> str:
    return json.dumps(list(names), ensure_ascii=False)


def metadata(name: str, model_id: str, model: Model) -> ModelMetadata:
    """Return the metadata of a model."""
    schema = model.schema
    columns = [column for target in schema.targets for column in _columns(target)]
    return ModelMetadata(
        name=name,
        versions=[model_id],
        inputs=[
            TensorMetadata(
                name=each.name,
                datatype="FP64" if isinstance(each, Numeric) else "BYTES",
                shape=[-1],
            )
            for each in schema.features
        ]
        + [
            TensorMetadata(name=each, datatype="FP64", shape=[-1])
            for each in exposure_columns(schema)
        ],
        outputs=[
            TensorMetadata(name=each, datatype="FP64", shape=[-1, len(columns)])
            for each in ("mean", "variance")
        ]
        + _of_outcomes(model),
        parameters={
            "targets": _listed(target.name for target in schema.targets),
            "columns": _listed(columns),
            "methods": json.dumps(methods_of(model)),
        },
    )


def _columns(target: AnyTarget) -> tuple[str, ...]:
    """Return the names of a target's columns in `mean` and `variance`."""
    if isinstance(target, Classes):
        return tuple(f"{target.name}.{level}" for level in target.levels)
    return (target.name,)


def _of_outcomes(model: Model) -> list[TensorMetadata]:
    """Return the further outputs of outcomes, from a prediction of no rows."""
    if model.outcomes is None:
        return []
    nothing = torch.zeros(0, model.kernel.features, dtype=torch.float64)
    return [
        TensorMetadata(
            name=f"{own.target.name}.{part.name}",
            datatype="FP64",
            shape=[-1, *part.values.shape[1:]],
        )
        for own in predict_outcomes(model, nothing, {})
        for part in parts_of(own, withheld=False)
        if part.name not in ("mean", "variance")
    ]
