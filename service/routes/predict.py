"""`POST /predict`: predictions by a stored model, as JSON."""

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from service.access import Caller
from service.bodies import read_unsigned
from service.context import Here
from service.prediction import Predicting
from service.prediction_json import Asked, Predicted, read, write

router = APIRouter(tags=["predictions"])

_BODY = {"required": True, "content": {"application/json": {"schema": Asked.model_json_schema()}}}


@router.post(
    "/predict",
    summary="Predict a table",
    responses={200: {"model": Predicted}},
    response_class=Response,
    openapi_extra={"requestBody": _BODY},
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
