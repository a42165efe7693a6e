"""`POST /predict`: predictions by a stored model, as JSON."""

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from kernels.errors import NotFitted, PredictionError, TableError
from service.access import Caller
from service.bodies import read_unsigned
from service.context import Here
from service.errors import BodyTooLarge, ModelDamaged, NotFound, RateExceeded, TableTooLong
from service.prediction import Predicting
from service.prediction_json import Asked, Predicted, read, write
from service.stated import states

router = APIRouter(tags=["callers"])


@router.post(
    "/predict",
    summary="Predict a table",
    responses={200: {"model": Predicted}},
    response_class=Response,
)
@states(
    NotFound,
    BodyTooLarge,
    TableTooLong,
    RateExceeded,
    TableError,
    PredictionError,
    NotFitted,
    ModelDamaged,
    body=Asked,
)
async def predict(caller: Caller, request: Request, here: Here, predictor: Predicting) -> Response:
    """Give mean and variance of every row and target, on request with intervals.

    The table comes as records or as columns; all that is wrong with it is said at once.
    """
    predictor.admit(caller)
    body = await read_unsigned(request, here.settings.max_predict_body)

    def answer() -> bytes:
        asked = read(body)
        return write(predictor.answer(caller, asked.model, asked.table, rows=asked.rows), asked)

    # Off the event loop: a table may take seconds, and the coordinator has other guests.
    return Response(
        await to_thread.run_sync(answer, limiter=predictor.threads), media_type="application/json"
    )
