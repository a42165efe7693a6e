"""`POST /predict`: predictions of a stored model, as JSON or as Arrow streams."""

from collections.abc import Callable

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from kernels.errors import NotFitted, PredictionError, TableError
from service.context import Context, Here
from service.errors import (
    ArrowRefused,
    BodyTooLarge,
    BodyTooSlow,
    MembersOnly,
    ModelDamaged,
    NotCertified,
    NotFound,
    RateExceeded,
    TableTooLong,
)
from service.http.access import Caller, ModelAccess
from service.http.bodies import read_unsigned
from service.http.declarations import BINARY, declares
from service.prediction import as_arrow, as_json
from service.prediction.arrow_stream import ARROW
from service.prediction.as_json import PredictRequest
from service.prediction.json_answers import PredictResponse
from service.prediction.prediction import Predictor
from service.routes.parts import PredictorHere

router = APIRouter(tags=["callers"])

ERRORS = (
    NotFound,
    MembersOnly,
    NotCertified,
    BodyTooLarge,
    BodyTooSlow,
    TableTooLong,
    RateExceeded,
    TableError,
    PredictionError,
    NotFitted,
    ModelDamaged,
)
"""The errors of prediction requests, in every format."""


@router.post(
    "/predict",
    operation_id="predict",
    summary="Predict a table",
    responses={200: {"model": PredictResponse, "content": {ARROW: {"schema": BINARY}}}},
    response_class=Response,
)
@declares(*ERRORS, ArrowRefused, body=PredictRequest)
async def predict(
    caller: Caller, request: Request, here: Here, predictor: PredictorHere
) -> Response:
    """Return mean and variance for every row and target, and intervals if requested.

    A model may have several prediction methods (`GET /models` lists them); `method` selects one.
    `ensemble: open` uses the models of the hospitals that currently share unmasked samples.

    The table is sent as records or as columns; an error lists everything that is wrong with it. A
    table with many rows can be sent as an Arrow stream, with the other fields in the query. The
    answer has the format that `Accept` names, otherwise the format of the table.
    """
    body = await admitted_body(caller, request, here, predictor)
    is_arrow = _names(request, "Content-Type", ARROW)
    accepts_json = _names(request, "Accept", "application/json")
    to_arrow = _names(request, "Accept", ARROW) or (is_arrow and not accepts_json)

    def answer() -> bytes:
        wanted = (
            as_arrow.read(body, request.query_params, most_rows=here.settings.max_predict_rows)
            if is_arrow
            else as_json.read(body)
        )
        found = predictor.answer(caller, wanted.model, wanted)
        write = as_arrow.write if to_arrow else as_json.write
        return write(found, intervals=wanted.intervals, kind=wanted.interval_kind)

    return await computed(answer, predictor, media_type=ARROW if to_arrow else "application/json")


async def admitted_body(
    caller: ModelAccess, request: Request, here: Context, predictor: Predictor
) -> bytes:
    """Charge the caller's rate limit for one request and read its body."""
    predictor.admit(caller)
    return await read_unsigned(request, here.settings.max_predict_body)


async def computed(
    answer: Callable[[], bytes], predictor: Predictor, *, media_type: str
) -> Response:
    """Compute the answer in a thread: a table may take seconds, and the event loop must go on."""
    data = await to_thread.run_sync(answer, limiter=predictor.threads)
    return Response(data, media_type=media_type)


def _names(request: Request, header: str, media_type: str) -> bool:
    return media_type in request.headers.get(header, "").lower()
