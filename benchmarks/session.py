"""A session of ten hospital processes against one process, and against flwr with SecAgg+.

A coordinator (`veilgp serve`) and ten hospitals (`veilgp join`) are processes on this machine that
talk by HTTP on loopback; every sum is a secure one, signed and written to disk. Seconds are of the
wall clock. The kernel has 200 features and about 20,000 parameters.

    exact_step_over_simulate   one step of exact training (two sums) with 2,000 rows a hospital, in
                               the session, over the same steps by `simulate(secure=False)` in this
                               process, measured before and after the session
    ms_per_sum                 of those steps in the session
    equals_simulate            the session's model is that of `simulate`, bit for bit
    flwr_session_over_ours     federated averaging, ten clients, 20 rounds, vectors of the same
                               length: flwr's simulation engine with SecAgg+ over our session
    predict_over_empty_route, bulk_over_kernel: see `benchmarks/predict_latency.py`

How far the session has come is asked for five times a second. Its steps are counted from the second
to the last one of the exact stage, and those of `simulate` likewise.

In federated averaging the local work is next to none on either side: our hospitals have 60 rows
each and take one step of Adam, flwr's clients return their vector at once. Starting is in neither
time. Our clock runs from the moment at which all hospitals have come to the run to its end, with
the epoch's boxes, the moments before training and the linear layer after it; flwr's runs after a
first round that warms it up.
"""

import json
import os
import subprocess
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from numpy.typing import NDArray

from benchmarks import hospitals, predict_latency
from benchmarks.federation import Federation, FederationFailed
from benchmarks.registry import Figures
from benchmarks.secure_sum import PEERS
from benchmarks.secure_sum_ours import quorum
from client_sdk import simulate
from kernels import KernelSpec, Schema, storage
from kernels.features.urk import weight_count
from kernels.model.model import Model
from kernels.rounds.columns import moments
from kernels.rounds.kernel import exact, fedavg
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.strict_json import encode_json

FLWR = Path(__file__).parent / "session_flwr.py"
MEMBERS, ROWS, FEW_ROWS, ROUNDS = 10, 2000, 60, 20
FEATURES, PARAMETERS = 200, 20_000
SEED = 7
LOOK_S = 0.2
HIDDEN = (132, 132)
POLICY = """\
least_cohort = 10
least_rows = 10
least_rows_held_out = 0
rows_per_feature = 0
least_level_rows = 0
algorithms = ["moments", "exact", "fedavg", "linear"]
columns = {columns}
max_sums = 1000
without_differential_privacy = true
"""

Table = dict[str, NDArray[np.generic]]


@dataclass
class Watched:
    """A run as it is seen from outside, in seconds of the wall clock."""

    came: float = 0.0
    """When it was last seen waiting for hospitals to come."""
    ended: float = 0.0
    sums: dict[int, float] = field(default_factory=dict)
    """When so many sums were first seen done."""

    def look(self, run: Mapping[str, Any]) -> None:
        """Take note of what the coordinator says of the run."""
        now = time.time()
        if run["status"] == "waiting":
            self.came = now
        self.sums.setdefault(run["progress"]["sums"], now)
        if run["ended_at"] is not None:
            self.ended = datetime.fromisoformat(run["ended_at"]).timestamp()

    def seconds_per_sum(self, first: int, last: int) -> float:
        """Give the pace from the first to the last of these counts that was seen."""
        seen = [count for count in self.sums if first <= count <= last]
        low, high = min(seen), max(seen)
        return (self.sums[high] - self.sums[low]) / (high - low)


@dataclass(frozen=True)
class Trained:
    """A session that has trained a model."""

    artifact: bytes
    watched: Watched
    start_s: float
    """From nothing to ten hospitals that are approved."""


def run(options: Namespace) -> Figures:
    if not PEERS.exists():
        raise SystemExit("flwr is not there: run `make .venv-peers/.installed`, or `make bench`")
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    figures = _exact(6 if options.quick else 20) | _fedavg(5 if options.quick else ROUNDS)
    figures |= predict_latency.figures(quick=options.quick)
    figures["load_before"] = load
    _print_table(figures)
    return figures


def _exact(steps: int) -> dict[str, float | bool]:
    program = _program(moments.Spec(), exact.Spec(steps=steps, penalties=(3.0,)), linear.Spec())
    tables = _tables(ROWS)
    # Counts of sums: one of the moments, two of each step. The first step is left out.
    first, last = 3, 1 + 2 * steps
    before, _ = _simulated(program, tables)
    session = _session(program, tables)
    after, model = _simulated(program, tables)
    session_s = session.watched.seconds_per_sum(first, last)
    simulate_s = sum(each.seconds_per_sum(first, last) for each in (before, after)) / 2
    return {
        "parameters": weight_count(program.kernel),
        "exact_step_over_simulate": session_s / simulate_s,
        "ms_per_sum": 1e3 * session_s,
        "simulate_ms_per_sum": 1e3 * simulate_s,
        "equals_simulate": session.artifact == storage.encode(model),
        "session_start_s": session.start_s,
    }


def _fedavg(rounds: int) -> dict[str, float | bool]:
    training = fedavg.Spec(rounds=rounds, local_steps=1, validate=False)
    program = _program(moments.Spec(), training, linear.Spec())
    length = weight_count(program.kernel)
    # Before and after ours, so that a change of the machine's pace in between shows in both.
    before = _flwr(rounds, length)
    tables = _tables(FEW_ROWS)
    session = _session(program, tables)
    after = _flwr(rounds, length)
    _, model = _simulated(program, tables)
    ours_s = session.watched.ended - session.watched.came
    flwr_s = (before["session_s"] + after["session_s"]) / 2
    return {
        "flwr_session_over_ours": flwr_s / ours_s,
        "fedavg_session_s": ours_s,
        "fedavg_ms_per_sum": 1e3 * session.watched.seconds_per_sum(1, 1 + rounds),
        "fedavg_equals_simulate": session.artifact == storage.encode(model),
        "flwr_session_s": flwr_s,
        "flwr_start_s": (before["start_s"] + after["start_s"]) / 2,
    }


def _program(*stages: object) -> Program:
    schema = Schema.from_json(json.dumps(hospitals.SCHEMA))
    kernel = KernelSpec(
        inputs=len(schema.feature_names), samples=FEATURES // 2, hidden=HIDDEN, seed=1
    )
    parameters = weight_count(kernel)
    if kernel.features != FEATURES or abs(parameters / PARAMETERS - 1) > 0.05:
        raise ValueError(f"the kernel has {kernel.features} features and {parameters} parameters")
    program = Program(schema, kernel, stages, max_rows=10_000)
    return Program.from_json(program.to_json())  # as the coordinator reads it


def _tables(rows: int) -> list[Table]:
    mixes = hospitals.MIXES
    return [hospitals.patients(mixes[i % len(mixes)], rows, i) for i in range(MEMBERS)]


def _simulated(program: Program, tables: list[Table]) -> tuple[Watched, Model]:
    watched = Watched()

    def seen(_: str, __: object) -> None:
        watched.sums[len(watched.sums) + 1] = time.time()

    return watched, simulate(program, tables, SEED, secure=False, watch=seen).model


def _session(program: Program, tables: list[Table]) -> Trained:
    """Run a program in a federation of its own."""
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for place, table in enumerate(tables):
            files[f"hospital-{place}"] = path = Path(folder) / f"{place}.parquet"
            pyarrow.parquet.write_table(pa.table(table), path)
        began = time.time()
        with Federation.started(Path(folder) / "federation") as federation:
            session = _created(federation, program)
            schema = program.schema
            columns = [column.name for column in (*schema.features, *schema.targets)]
            federation.enrol(session, files, POLICY.format(columns=json.dumps(columns)))
            federation.approve(session)
            start_s, watched = time.time() - began, Watched()
            run = federation.admin("POST", f"/sessions/{session}/runs", {"kind": "train"})
            ended = federation.follow(run["id"], seen=watched.look, wait_s=1800, every_s=LOOK_S)
            if ended["status"] != "done":
                raise FederationFailed(f"the run {ended['status']}: {ended['detail']}")
            return Trained(federation.artifact(ended["model"]), watched, start_s)


def _created(federation: Federation, program: Program) -> str:
    session = federation.admin(
        "POST",
        "/sessions",
        {
            "name": "benchmark",
            "schema": hospitals.SCHEMA,
            "kernel": {"samples": FEATURES // 2, "hidden": HIDDEN, "seed": 1},
            "stages": [
                {"algorithm": algorithm.NAME, "parameters": asdict(spec)}
                for algorithm, spec in program.algorithms()
            ],
            "max_rows": program.max_rows,
            "held_out": program.held_out,
            "seed": SEED,
            "members": MEMBERS,
            "privacy": {"differential_privacy": False},
        },
    )
    if encode_json(session["program"]) != program.to_json():
        raise FederationFailed("the session has another program than this benchmark simulates")
    session_id: str = session["id"]
    return session_id


def _flwr(rounds: int, length: int) -> Mapping[str, float]:
    arguments = {
        "members": MEMBERS,
        "rounds": rounds,
        "length": length,
        "threshold": quorum(MEMBERS),
    }
    shown = subprocess.run(
        [str(PEERS), str(FLWR), json.dumps(arguments)], check=True, capture_output=True, text=True
    )
    measured: dict[str, float] = json.loads(shown.stdout.splitlines()[-1])
    return measured


def _print_table(figures: Mapping[str, float | bool]) -> None:
    for name, figure in figures.items():
        shown = str(figure) if isinstance(figure, bool) else format(figure, ".4g")
        print(f"{name:28} {shown:>10}")
