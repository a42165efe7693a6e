"""The algorithm of docs/contributing.md where it has been added, in a copy of the repository.

`tests/test_contributing.py` makes that copy and runs this file there.
"""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from client_sdk import simulate
from kernels import storage
from kernels.features.spec import KernelSpec
from kernels.rounds.broadcast import received
from kernels.rounds.columns import moments
from kernels.rounds.plan import StageDisclosure, stages_disclosed
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Target
from tests.dealing import DEALING

correlations: Any = import_module("kernels.rounds.columns.correlations")

SCHEMA = Schema(
    (Numeric("age", "a"), Numeric("lactate", "mmol/l"), Categorical("ward", ("a", "b"))),
    (Target("stay", "d"),),
)
PROGRAM = Program(
    SCHEMA,
    KernelSpec(inputs=4, samples=2, hidden=(2,), seed=1),
    (moments.Spec(), correlations.Spec()),
    held_out=0,
)


def table(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    age, lactate = random.uniform(20, 90, 30), random.uniform(0.5, 4, 30)
    ward = np.where(random.random(30) < 0.4, "a", "b")
    stay = age / 30 + lactate + random.normal(size=30)
    return {"age": age, "lactate": lactate, "ward": ward, "stay": stay}


def test_its_result_is_that_of_all_rows_in_one_place() -> None:
    tables = [table(seed) for seed in range(3)]
    outcome = simulate(PROGRAM, tables, DEALING, secure=True)
    pooled = {name: np.concatenate([each[name] for each in tables]) for name in tables[0]}
    columns = [
        pooled["age"],
        pooled["lactate"],
        pooled["ward"] == "a",
        pooled["ward"] == "b",
        pooled["stay"],
    ]
    last = outcome.states[-1]
    assert last.matrix.numpy() == pytest.approx(np.corrcoef(columns), abs=1e-9)
    assert storage.encode(restore(storage.encode(last))) == storage.encode(last)
    assert restore(storage.encode(last)).matrix.equal(last.matrix)


def test_a_program_with_it_is_plain_data() -> None:
    assert Program.from_json(PROGRAM.to_json()) == PROGRAM
    state = correlations.initial(correlations.Spec(), PROGRAM.start())
    broadcast = storage.encode(state, broadcast=True)
    assert type(received(broadcast, PROGRAM, 1)) is correlations.State


def test_a_hospital_reads_what_it_sums() -> None:
    # 15 products of every two of 5 columns, 5 sums, and a number of rows.
    assert stages_disclosed(PROGRAM)[1] == StageDisclosure(
        algorithm="correlations/1",
        sums=1,
        numbers=21,
        words="sums of products of every two columns, sums of each column, and how many rows "
        "there are, once",
    )
