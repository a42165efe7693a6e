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
from client_sdk import simulate, site_of_home
from client_sdk.gate.dictionary import Dictionary
from kernels.model.model import Model
from kernels.rounds.plan import columns_read, declared
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.rounds.site.site import Site
from kernels.rounds.task import program_digest
from kernels.storage import encode

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


def policy(session: Mapping[str, Any], **changed: object) -> str:
    """Return a policy for a session as the coordinator describes it."""
    program = Program.from_json(program_text(session))
    lines: dict[str, object] = {
        "least_cohort": 3,
        "least_rows": 50,
        "rows_per_feature": 2,
        "least_level_rows": 0,
        "algorithms": ALGORITHMS,
        "columns": columns_read(program.schema),
        "max_sums": 200,
        "programs": [program_digest(program.to_json())],
        "coordinator_ratio": 1e6,
        "hospital_ratio": 1e6,
        "without_differential_privacy": True,
        "open_sums": session["sums"] == "open",
        "served_model": True,
        "least_answer_s": 0.0,
        **changed,
    }
    sets = [stage.public_set for stage in declared(program) if stage.public_set is not None]
    return "\n".join(
        [
            *(f"{name} = {json.dumps(value)}" for name, value in lines.items()),
            f"[recipes]\npublic_sets = {json.dumps(sets)}",
            Dictionary.containing(program.schema).to_toml("dictionary."),
        ]
    )


NEW: Mapping[str, Any] = {
    "name": "study",
    "schema": hospitals.SCHEMA,
    "kernel": {"hidden": [8], "samples": 20, "seed": 1},
    "stages": STAGES,
    "max_rows": 1000,
    "held_out": 0.2,
    "members": len(TABLES),
    "privacy": {"differential_privacy": False},
    "model": "served",
}


def create(federation: Federation, **changed: Any) -> Mapping[str, Any]:
    session: Mapping[str, Any] = federation.admin("POST", "/sessions", {**NEW, **changed})
    return session


def program_text(session: Mapping[str, Any]) -> str:
    return json.dumps(session["program"])


def files(folder: Path) -> dict[str, Path]:
    written = {}
    for name, table in TABLES.items():
        written[name] = folder / f"{name}.csv"
        pyarrow.csv.write_csv(pa.table(dict(table)), written[name])
    return written


def dealt(session: Mapping[str, Any], homes: Mapping[str, Path]) -> list[Site]:
    """Return the hospitals' tables, dealt as the secrets in their homes deal them."""
    program = Program.from_json(program_text(session))
    return [site_of_home(program, TABLES[name], home) for name, home in homes.items()]


def simulated(session: Mapping[str, Any], homes: Mapping[str, Path]) -> Model:
    program = Program.from_json(program_text(session))
    return simulate(program, dealt(session, homes), secure=False).model


def homes_of(federation: Federation) -> Mapping[str, Path]:
    return {hospital.name: hospital.home for hospital in federation.hospitals}


def trained(federation: Federation, run: Mapping[str, Any]) -> Model:
    assert run["status"] == "done", (run["status"], run["code"], run["detail"])
    model = restore(federation.artifact(run["model"]))
    assert isinstance(model, Model)
    return model


def assert_same(one: Model, other: Model) -> None:
    """Assert that all numbers of both are exactly equal."""
    assert encode(one) == encode(other)


def more_patients() -> dict[str, np.ndarray[Any, Any]]:
    return hospitals.patients(hospitals.MIXES[0], ROWS, 4)
