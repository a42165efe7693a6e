"""Our session in its own processes, observed from outside, and the same program in this process."""

import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from benchmarks import hospitals
from benchmarks.dealing import dealing_of
from benchmarks.federation import Federation, FederationFailed
from client_sdk import simulate
from client_sdk.gate.dictionary import Dictionary
from kernels import KernelSpec, Schema
from kernels.features.urk import weight_count
from kernels.model.model import Model
from kernels.rounds.program import Program
from kernels.rounds.site.site import Site
from kernels.rounds.task import program_digest
from kernels.strict_json import encode_json

MEMBERS = 10
FEATURES, PARAMETERS = 200, 20_000
LOOK_S = 0.2
ROW_BAND = 4096
DEALING = dealing_of(7)
"""Deals the rows of the tables that this process trains on."""
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
programs = [{program}]
coordinator_ratio = 1e9
hospital_ratio = 1e9
without_differential_privacy = true
open_sums = true
served_model = true
least_answer_s = {least_answer_s}
row_band = {row_band}

{dictionary}
"""

Table = dict[str, NDArray[np.generic]]


@dataclass
class Watched:
    """A run as observed from outside, in wall-clock seconds."""

    came: float = 0.0
    """When it was last observed waiting for hospitals to join."""
    ended: float = 0.0
    sums: dict[int, float] = field(default_factory=dict)
    """When each number of completed sums was first observed."""
    cpu: dict[int, float] = field(default_factory=dict)
    """The coordinator's CPU seconds at these moments."""

    def look(self, run: Mapping[str, Any], coordinator: int) -> None:
        """Record what the coordinator, a process with this id, reports about the run."""
        now = time.time()
        if run["status"] == "waiting":
            self.came = now
        count = run["progress"]["sums"]
        if count not in self.sums:
            self.sums[count], self.cpu[count] = now, cpu_seconds(coordinator)
        if run["ended_at"] is not None:
            self.ended = datetime.fromisoformat(run["ended_at"]).timestamp()

    def seconds_per_sum(self, first: int, last: int) -> float:
        """Return the seconds per sum between the first and last observed counts in this range."""
        return _per_sum(self.sums, first, last)

    def cpu_per_sum(self, first: int, last: int) -> float:
        """Return the coordinator's CPU seconds per sum in the same range."""
        return _per_sum(self.cpu, first, last)


def _per_sum(seen: Mapping[int, float], first: int, last: int) -> float:
    counts = [count for count in seen if first <= count <= last]
    low, high = min(counts), max(counts)
    return (seen[high] - seen[low]) / (high - low)


def cpu_seconds(process: int) -> float:
    """Return the CPU seconds that a process has used, with all its threads (Linux)."""
    # The name, in brackets, may contain spaces; user and system time are fields 14 and 15.
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Trained:
    """A session that has trained a model."""

    artifact: bytes
    watched: Watched
    start_s: float
    """The seconds from the start until ten hospitals are approved."""
    sites: list[Site]
    """The tables as its hospitals dealt them."""


def program_of(*stages: object) -> Program:
    schema = Schema.from_json(json.dumps(hospitals.SCHEMA))
    kernel = KernelSpec(
        inputs=len(schema.feature_names), samples=FEATURES // 2, hidden=HIDDEN, seed=1
    )
    parameters = weight_count(kernel)
    if kernel.features != FEATURES or abs(parameters / PARAMETERS - 1) > 0.05:
        raise ValueError(f"the kernel has {kernel.features} features and {parameters} parameters")
    program = Program(schema, kernel, stages, max_rows=10_000)
    return Program.from_json(program.to_json())  # as the coordinator reads it


def draw_tables(rows: int) -> list[Table]:
    mixes = hospitals.MIXES
    return [hospitals.patients(mixes[i % len(mixes)], rows, i) for i in range(MEMBERS)]


def dealt_here(program: Program, tables: list[Table]) -> list[Site]:
    how: Any = {"held_out": program.held_out, "dealing": DEALING}
    return [Site.of_table(program.schema, table, **how) for table in tables]


def train_here(program: Program, sites: list[Site]) -> tuple[Watched, Model]:
    watched = Watched()

    def seen(_: str, __: object) -> None:
        watched.sums[len(watched.sums) + 1] = time.time()

    return watched, simulate(program, sites, secure=False, watch=seen).model


def train_in_session(
    program: Program, tables: list[Table], *, sums: str = "blind", least_answer_s: float = 0.0
) -> Trained:
    """Run a program in a new federation, with blind or open sums.

    With `least_answer_s` = 0 no answer waits for its time.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for place, table in enumerate(tables):
            files[f"hospital-{place}"] = path = Path(folder) / f"{place}.parquet"
            pyarrow.parquet.write_table(pa.table(table), path)
        began = time.time()
        with Federation.started(Path(folder) / "federation") as federation:
            session = _created(federation, program, sums)
            schema = program.schema
            columns = [column.name for column in (*schema.features, *schema.targets)]
            dictionary = Dictionary.containing(schema).to_toml("dictionary.")
            rules = POLICY.format(
                columns=json.dumps(columns),
                dictionary=dictionary,
                least_answer_s=least_answer_s,
                row_band=ROW_BAND,
                program=json.dumps(program_digest(program.to_json())),
            )
            federation.enrol(session, files, rules)
            federation.approve(session)
            start_s, watched = time.time() - began, Watched()
            run = federation.admin("POST", f"/sessions/{session}/runs", {"kind": "train"})

            def look(seen: Mapping[str, Any]) -> None:
                federation.check_hospitals()
                watched.look(seen, federation.coordinator_pid)

            ended = federation.follow(run["id"], seen=look, wait_s=1800, every_s=LOOK_S)
            if ended["status"] != "done":
                raise FederationFailed(f"the run {ended['status']}: {ended['detail']}")
            artifact = federation.artifact(ended["model"])
            return Trained(artifact, watched, start_s, federation.sites(program))


def _created(federation: Federation, program: Program, sums: str) -> str:
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
            "members": MEMBERS,
            "privacy": {"differential_privacy": False},
            "sums": sums,
            "model": "served",
        },
    )
    if encode_json(session["program"]) != program.to_json():
        raise FederationFailed("the session has another program than this benchmark simulates")
    session_id: str = session["id"]
    return session_id
