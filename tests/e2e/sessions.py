"""A small study over real processes, the start of every end-to-end test."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from benchmarks import hospitals
from benchmarks.federation import Federation
from client_sdk import simulate
from kernels.model.model import Model
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.storage import encode

SEED = 11
ROWS = 160
STAGES = [
    {"algorithm": "moments"},
    {"algorithm": "exact", "parameters": {"steps": 3, "penalties": [3.0]}},
    {"algorithm": "linear"},
    {"algorithm": "recalibration"},
    {"algorithm": "evaluation"},
]
ALGORITHMS = [stage["algorithm"] for stage in STAGES]
# Three, the minimum of a roster: every process loads torch, and there are few cores.
TABLES = {mix.name: hospitals.patients(mix, ROWS, 3) for mix in hospitals.MIXES[:3]}


def policy(**changed: object) -> str:
    lines: dict[str, object] = {
        "least_cohort": 3,
        "least_rows": 50,
        "rows_per_feature": 3,
        "least_level_rows": 0,
        "algorithms": ALGORITHMS,
        "columns": [*next(iter(TABLES.values()))],
        "max_sums": 50,
        "without_differential_privacy": True,
        **changed,
    }
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items())


NEW: Mapping[str, Any] = {
    "name": "study",
    "schema": hospitals.SCHEMA,
    "kernel": {"hidden": [8], "samples": 20, "seed": 1},
    "stages": STAGES,
    "max_rows": 1000,
    "held_out": 0.2,
    "seed": SEED,
    "members": len(TABLES),
    "privacy": {"differential_privacy": False},
}


def create(federation: Federation) -> Mapping[str, Any]:
    session: Mapping[str, Any] = federation.admin("POST", "/sessions", NEW)
    return session


def program_text(session: Mapping[str, Any]) -> str:
    return json.dumps(session["program"])


def files(folder: Path) -> dict[str, Path]:
    written = {}
    for name, table in TABLES.items():
        written[name] = folder / f"{name}.csv"
        pyarrow.csv.write_csv(pa.table(dict(table)), written[name])
    return written


def simulated(session: Mapping[str, Any]) -> Model:
    program = Program.from_json(program_text(session))
    tables = [dict(table) for table in TABLES.values()]
    return simulate(program, tables, SEED, secure=False).model


def trained(federation: Federation, run: Mapping[str, Any]) -> Model:
    assert run["status"] == "done", (run["status"], run["code"], run["detail"])
    model = restore(federation.artifact(run["model"]))
    assert isinstance(model, Model)
    return model


def assert_same(one: Model, other: Model) -> None:
    """Assert that all numbers of both are exactly equal."""
    assert encode(one) == encode(other)


def pooled_table() -> dict[str, np.ndarray[Any, Any]]:
    return hospitals.pooled([dict(table) for table in TABLES.values()])


def more_patients() -> dict[str, np.ndarray[Any, Any]]:
    return hospitals.patients(hospitals.MIXES[0], ROWS, 4)
