"""Predictions in the Open Inference Protocol, version 2, for inference gateways.

A tensor for each feature: BYTES for a categorical one, FP64 for a numeric one, of shape [n] or
[n, 1], null for a missing cell. Outputs are `mean` and `variance`, FP64 of shape [n, T], with the
targets in the order of the model's metadata. The parameter `method` names one of the methods that
the metadata lists, and is also in the answer. If variances are withheld from a caller, a request
for them is refused, and a request without `outputs` returns means only.
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
    """A requested output."""

    name: Output
    parameters: Parameters = Field(default={})


class InferIn(RequestModel):
    """A prediction request with tensors; without `outputs`, all available outputs are returned.

    Fields of `parameters`: `method`, one of the model's methods; `ensemble`, distilled or open.
    """

    id: str | None = Field(default=None, max_length=200)
    parameters: Parameters = Field(default={})
    inputs: list[TensorIn] = Field(min_length=1, max_length=10_000)
    outputs: list[OutputIn] = Field(default=[], max_length=2)

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
    """The numbers of all rows, in row-major order: all targets of a row, then the next row."""

    name: Output
    shape: list[int]
    datatype: Literal["FP64"] = "FP64"
    data: list[float]


class InferOut(BaseModel):
    """The predictions; `model_version` is the model's id, also if the request named an alias."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: Parameters = Field(
        description="`method`: the method that was used. `ensemble`: how the sites' predictions "
        "were combined. `members`, `cohort`: hospitals in the open ensemble and in the run. "
        "`withheld`: the code of the reason if the answer has means only."
    )
    outputs: list[TensorOut]


class TensorMetadata(BaseModel):
    """A tensor without its numbers."""

    name: str
    datatype: Datatype
    shape: list[int]


class ModelMetadata(BaseModel):
    """The input and output tensors of a model.

    `targets` and `methods` in `parameters` are JSON lists; the first method is the default.
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
    """Return the metadata of a model."""
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
