"""Predictions in the Open Inference Protocol, version 2, as inference gateways speak it.

A tensor for each feature: BYTES for a categorical one, FP64 for a numeric one, of shape [n] or
[n, 1], null where a cell is missing. Outputs are `mean` and `variance`, FP64 of shape [n, T], the
targets in the order of the model's metadata. The parameter `method` names one of the methods that
the metadata lists, and is also in the answer. Where variances are withheld from a caller, asking
for them is refused, and asking for nothing in particular gives means.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, Field, model_validator

from kernels.model.methods import methods_of
from kernels.model.model import Model
from kernels.tables.schema import Numeric, Schema
from service.http.request_models import RequestModel, read_table_json
from service.prediction.as_json import Ensemble, check_finite
from service.prediction.prediction import Answer

Output = Literal["mean", "variance"]
Parameters = dict[str, str | int | float | bool]
Datatype = Literal[
    "BOOL", "BYTES", "FP16", "FP32", "FP64",
    "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64",
]  # fmt: skip


class TensorIn(RequestModel):
    """A column of the table."""

    name: str = Field(examples=["age"])
    shape: list[Annotated[int, Field(ge=0)]] = Field(min_length=1, max_length=2, examples=[[1]])
    datatype: Datatype = Field(examples=["FP64"])
    parameters: Parameters = Field(default={})
    data: list[Any] = Field(examples=[[61]])

    @model_validator(mode="after")
    def _one_column(self) -> Self:
        if self.shape[1:] not in ([], [1]):
            raise ValueError("a tensor is one column: its shape is [rows] or [rows, 1]")
        if len(self.data) != self.shape[0]:
            raise ValueError("a tensor has as many elements as its shape says")
        return self

    @property
    def cells(self) -> list[Any]:
        """The column's cells, also of rows that are lists of one."""
        rows = self.data
        nested = len(self.shape) == 2 and all(isinstance(r, list) and len(r) == 1 for r in rows)
        return [row[0] for row in rows] if nested else rows


class OutputIn(RequestModel):
    """An output that is asked for."""

    name: Output
    parameters: Parameters = Field(default={})


class InferIn(RequestModel):
    """A table to predict, as tensors; without `outputs`, all that may be had.

    `method` in `parameters`: by which of the model's methods. `ensemble`: distilled or open.
    """

    id: str | None = Field(default=None, max_length=200)
    parameters: Parameters = Field(default={})
    inputs: list[TensorIn] = Field(min_length=1, max_length=10_000)
    outputs: list[OutputIn] = Field(default=[], max_length=2)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for each in (self.inputs, self.outputs):
            if any(count > 1 for count in Counter(tensor.name for tensor in each).values()):
                raise ValueError("two tensors have one name")
        return self

    @property
    def rows(self) -> int:
        """How many rows the table has; of uneven columns, the most."""
        return max(len(tensor.data) for tensor in self.inputs)

    @property
    def method(self) -> str | None:
        """By which of the model's methods."""
        return self._named("method")

    @property
    def ensemble(self) -> str | None:
        """In which way many sites' predictions are made into one."""
        return self._named("ensemble")

    def _named(self, parameter: str) -> str | None:
        found = self.parameters.get(parameter)
        return None if found is None else str(found)

    @model_validator(mode="after")
    def _known_ensemble(self) -> Self:
        if self.ensemble not in (None, *get_args(Ensemble)):
            raise ValueError(f"the parameter ensemble is one of {', '.join(get_args(Ensemble))}")
        return self

    def table(self, _: Schema) -> Mapping[str, object]:
        """Return all columns by name."""
        return {tensor.name: tensor.cells for tensor in self.inputs}


class TensorOut(BaseModel):
    """Numbers of all rows, one row's targets after the other."""

    name: Output
    shape: list[int]
    datatype: Literal["FP64"] = "FP64"
    data: list[float]


class InferOut(BaseModel):
    """The answer; `model_version` is the model's id, also where an alias was request."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: Parameters = Field(
        description="`method`: by which it was predicted. `ensemble`, `members`, `cohort`: of how "
        "many sites, in which way. `withheld`: why there are means only, if so."
    )
    outputs: list[TensorOut]


class TensorMetadata(BaseModel):
    """A tensor without its numbers."""

    name: str
    datatype: Datatype
    shape: list[int]


class ModelMetadata(BaseModel):
    """What a model takes and gives.

    `targets` and `methods` in `parameters` are JSON lists, in their order, the default first.
    """

    name: str
    versions: list[str]
    platform: str = "veilgp"
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    parameters: Parameters


def read(body: bytes) -> InferIn:
    """Read a request; the body is not trusted."""
    return read_table_json(InferIn, body)


def write(name: str, answer: Answer, request: InferIn) -> bytes:
    """Write an answer as `InferOut`; floats survive it to the last bit."""
    predictions, withheld = answer.predictions, answer.withheld
    check_finite(predictions)
    wanted = [output.name for output in request.outputs]
    if withheld is not None and "variance" in wanted:
        raise withheld
    if not wanted:
        wanted = ["mean"] if withheld is not None else ["mean", "variance"]
    plain: dict[str, Any] = {
        "model_name": name,
        "model_version": answer.model_id,
        **({} if request.id is None else {"id": request.id}),
        "parameters": {
            "method": predictions.method,
            **answer.about,
            **({} if withheld is None else {"withheld": withheld.code}),
        },
        "outputs": [
            {
                "name": each,
                "shape": list(predictions.mean.shape),
                "datatype": "FP64",
                "data": getattr(predictions, each).flatten().tolist(),
            }
            for each in wanted
        ],
    }
    return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode()


def metadata(name: str, model_id: str, model: Model) -> ModelMetadata:
    """Describe a model."""
    schema = model.schema
    targets = [target.name for target in schema.targets]
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
        ],
        outputs=[
            TensorMetadata(name=each, datatype="FP64", shape=[-1, len(targets)])
            for each in ("mean", "variance")
        ],
        parameters={
            "targets": json.dumps(targets, ensure_ascii=False),
            "methods": json.dumps(methods_of(model)),
        },
    )
