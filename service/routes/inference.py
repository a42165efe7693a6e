"""`/v2`: the Open Inference Protocol, for gateways that support it; models by id or alias.

A model's version is its id. An alias has one version, the model that it refers to now. Errors are
problem documents, as on all routes. The contract lists each operation once; the paths with
`/versions/{version}` are the same operations.
"""

from importlib.metadata import version as installed

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from service.context import Here
from service.errors import MembersOnly, ModelDamaged, NotCertified, NotFound, VarianceWithheld
from service.http.access import Caller
from service.http.declarations import declares
from service.prediction.open_inference import (
    InferIn,
    InferOut,
    ModelMetadata,
    metadata,
    read,
    write,
)
from service.routes.parts import DatabaseCheckHere, PredictorHere
from service.routes.predict import ERRORS, admitted_body, computed

router = APIRouter(prefix="/v2", tags=["callers"])


class ServerOut(BaseModel):
    """Name and version of the server."""

    name: str
    version: str
    extensions: list[str]


class LiveOut(BaseModel):
    """Whether the coordinator is alive."""

    live: bool


class ReadyOut(BaseModel):
    """Whether the coordinator or a model is ready."""

    ready: bool


class ModelReadyOut(ReadyOut):
    """Whether a model is ready."""

    name: str


@router.get("", operation_id="getServerMetadata", summary="Describe the server")
async def server() -> ServerOut:
    """Return name and version of the server."""
    return ServerOut(name="veilgp", version=installed("veilgp"), extensions=[])


@router.get(
    "/health/live", operation_id="checkServerLive", summary="Check that the server is alive"
)
async def live() -> LiveOut:
    """Confirm that the coordinator is alive."""
    return LiveOut(live=True)


@router.get(
    "/health/ready", operation_id="checkServerReady", summary="Check that the server is ready"
)
async def ready(database: DatabaseCheckHere) -> ReadyOut:
    """Check that the coordinator and its database answer; a result is kept for one second."""
    await database.result()
    return ReadyOut(ready=True)


@router.get("/models/{name}", operation_id="getModelMetadata", summary="Describe a model")
@router.get("/models/{name}/versions/{version}", include_in_schema=False)
@declares(NotFound, MembersOnly, NotCertified, ModelDamaged)
def describe(
    caller: Caller, name: str, predictor: PredictorHere, version: str | None = None
) -> ModelMetadata:
    """Return the input and output tensors of a model."""
    model_id, model = predictor.find(caller, name, version=version)
    return metadata(name, model_id, model)


@router.get(
    "/models/{name}/ready", operation_id="checkModelReady", summary="Check that a model is ready"
)
@router.get("/models/{name}/versions/{version}/ready", include_in_schema=False)
@declares(NotFound, MembersOnly, NotCertified, ModelDamaged)
def model_ready(
    caller: Caller, name: str, predictor: PredictorHere, version: str | None = None
) -> ModelReadyOut:
    """Check that a model exists and is undamaged."""
    predictor.find(caller, name, version=version)
    return ModelReadyOut(name=name, ready=True)


@router.post(
    "/models/{name}/infer",
    operation_id="infer",
    summary="Predict tensors",
    responses={200: {"model": InferOut}},
    response_class=Response,
)
@router.post("/models/{name}/versions/{version}/infer", include_in_schema=False)
@declares(*ERRORS, VarianceWithheld, body=InferIn)
async def infer(
    caller: Caller,
    name: str,
    request: Request,
    here: Here,
    predictor: PredictorHere,
    version: str | None = None,
) -> Response:
    """Return mean and variance for every row and target."""
    body = await admitted_body(caller, request, here, predictor)

    def answer() -> bytes:
        wanted = read(body)
        found = predictor.answer(caller, name, wanted, version=version)
        return write(name, found, wanted)

    return await computed(answer, predictor, media_type="application/json")
