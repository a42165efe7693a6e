"""The overhead of `/predict`: one row relative to an empty route, bulk relative to the kernel.

predict_over_empty_route   p50 of one row as JSON, divided by p50 of a route that checks the same
                           token and returns nothing; alternating, over one connection, one process
bulk_over_kernel           rows/s of 100,000 rows as Arrow over HTTP, divided by that of the
                           kernel's own `predict` in this process, on the same table with its
                           categories as codes

`benchmarks.session` calls `figures`; `python -m benchmarks.predict_latency` prints them alone.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import httpx
import pyarrow as pa
import uvicorn
from fastapi import Request, Response
from sqlalchemy import insert

from benchmarks import hospitals
from benchmarks.dealing import dealing_of
from benchmarks.federation import Process, free_port, wait_until
from client_sdk import simulate
from kernels.features.spec import KernelSpec
from kernels.model.artifact import Artifact
from kernels.model.card_sections import Privacy
from kernels.model.model import Model
from kernels.model.prediction import predict
from kernels.rounds.columns import moments
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.tables.arrow_cells import as_labels
from kernels.tables.schema import Schema
from service import models
from service.app import create_app
from service.database import tables
from service.database.database import Database
from service.http import tokens
from service.http.access import Caller
from service.http.bodies import read_unsigned
from service.http.tokens import Role
from service.prediction.arrow_stream import ARROW, write_table
from service.settings import Settings

ROWS = 100_000


def figures(*, quick: bool = False) -> dict[str, float]:
    """Return both figures."""
    with _served() as (url, token, model_id, model), httpx.Client() as http:
        http.headers["Authorization"] = f"Bearer {token}"
        row = {name: cells[:1].tolist() for name, cells in _table(1).items()}
        body = json.dumps({"model": model_id, "columns": row}).encode()
        turns = 200 if quick else 1000
        return {
            "predict_over_empty_route": _one_row(http, url, body, turns),
            "bulk_over_kernel": _bulk(http, url, model_id, model, 3 if quick else 7),
        }


def _one_row(http: httpx.Client, url: str, body: bytes, turns: int) -> float:
    def ask(path: str) -> Callable[[], None]:
        return lambda: _checked(http.post(f"{url}{path}", content=body))

    routes = (ask("/predict"), ask("/empty"))
    seconds = [[_seconds(route) for route in routes] for _ in range(turns)]
    one, empty = (median(each) for each in zip(*seconds[turns // 10 :], strict=True))
    return float(one / empty)


def _bulk(http: httpx.Client, url: str, model_id: str, model: Model, turns: int) -> float:
    table = _table(ROWS)
    octets = write_table(pa.table(table))
    headers = {"Content-Type": ARROW}
    target = f"{url}/predict?model={model_id}"

    def ask() -> None:
        _checked(http.post(target, content=octets, headers=headers, timeout=120))

    # Measure the kernel at its fastest: reading 100,000 text labels takes longer than predicting.
    coded = {**table, "ward": as_labels(pa.array(table["ward"]))}

    def compute() -> None:
        predict(model, coded)

    seconds = [[_seconds(each) for each in (ask, compute)] for _ in range(turns)]
    over_http, alone = (median(each) for each in zip(*seconds[1:], strict=True))
    return float(alone / over_http)


def _seconds(do: Callable[[], None]) -> float:
    begun = time.perf_counter()
    do()
    return time.perf_counter() - begun


def _checked(response: httpx.Response) -> None:
    response.raise_for_status()


def _table(rows: int) -> dict[str, Any]:
    drawn = hospitals.patients(hospitals.MIXES[-1], rows, 7)
    return {name: cells for name, cells in drawn.items() if name != "stay"}


@contextmanager
def _served() -> Iterator[tuple[str, str, str, Model]]:
    """Start a server in its own process; yield its URL, a caller's token, a model id, the model."""
    with tempfile.TemporaryDirectory() as folder:
        artifact = _trained()
        token = _stored(Path(folder), artifact)
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.predict_latency", folder, str(port)]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        server = Process("server", command, Path(folder) / "log", threads)
        server.start()
        url = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            try:
                return httpx.get(f"{url}/healthz").status_code == 200
            except httpx.TransportError:
                return False

        try:
            wait_until(answers, "the server answers")
            yield url, token, artifact.id, artifact.model
        finally:
            server.stop()


def _trained() -> Artifact:
    schema = Schema.from_json(json.dumps(hospitals.SCHEMA))
    kernel = KernelSpec(inputs=len(schema.feature_names), hidden=(32,), samples=100, seed=1)
    program = Program(schema, kernel, (moments.Spec(), linear.Spec()), max_rows=2000, held_out=0.0)
    drawn = [hospitals.patients(mix, 1000, 3) for mix in hospitals.MIXES[:3]]
    return Artifact.of(
        simulate(program, drawn, dealing_of(1), secure=False).model,
        program=program,
        members=3,
        sums=3,
        privacy=Privacy.of(schema, min_cohort=3, max_colluders=0),
        created=datetime(2026, 11, 16, tzinfo=UTC),
    )


def _stored(folder: Path, artifact: Artifact) -> str:
    database = Database(_settings(folder).url)
    database.migrate()
    session_id = str(uuid4())
    session = {"id": session_id, "name": "study", "program": "", "terms": b""}
    with database.changing() as connection:
        connection.execute(
            insert(tables.sessions).values(**session, planned_members=3, created_at=0.0)
        )
        models.store(
            connection,
            session_id=session_id,
            run_id=str(uuid4()),
            artifact=artifact,
            now=0.0,
            serve_uncertified=True,
        )
        names = (artifact.id,)
        issued = tokens.issue(connection, Role.CALLER, "caller", now=0.0, models=names)
    database.close()
    return issued.secret


def _settings(folder: Path) -> Settings:
    # The limits are not part of the measurement.
    return Settings(data_dir=folder, caller_rows_per_minute=10**12, max_predict_body=1 << 28)


def _serve(folder: Path, port: int) -> None:
    app = create_app(_settings(folder))

    @app.post("/empty")
    async def empty(_: Caller, request: Request) -> Response:
        await read_unsigned(request, 1 << 20)
        return Response(b"{}", media_type="application/json")

    uvicorn.run(app, port=port, log_level="warning")


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    if len(sys.argv) == 3:
        _serve(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        print(json.dumps(figures(quick="--quick" in sys.argv)))
