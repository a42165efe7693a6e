"""A hospital's table of 10⁷ rows takes part within 1 GB: peak memory and time of a fresh process.

Another process writes a Parquet file (8 numeric columns, 2 categorical, a patient column, 2
targets; missing cells). The measured process reads and checks it, deals its rows, computes its
digest, and contributes to the sums of standardisation and of the linear layer (M = 128). Peak
memory is the process's own, including torch and arrow, compared with the promised limit. Times are
CPU seconds.

`python -m benchmarks.table PATH` runs the measured process alone.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.registry import Figures
from kernels.features.spec import KernelSpec
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Target

LIMIT_MB = 1000.0
ROW_GROUP = 500_000
WARDS = ("medical", "surgical", "intensive")

SCHEMA = Schema(
    (
        *(Numeric(f"x{i}", "1", -10, 10, may_be_missing=i == 0) for i in range(8)),
        Categorical("sex", ("f", "m"), may_be_missing=True),
        Categorical("ward", WARDS),
    ),
    (Target("stay", "d", -100, 100), Target("cost", "EUR", -100, 100)),
    patient="patient",
)


def run(options: Namespace) -> Figures:
    rows = 10**6 if options.quick else 10**7
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        write(path, rows)
        size_mb = path.stat().st_size / 1e6
        print(f"{rows:,} rows, {size_mb:.0f} MB of Parquet")
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.table", str(path)],
            check=True,
            capture_output=True,
            text=True,
            env=os.environ,
        )
    measured: dict[str, float] = json.loads(done.stdout)
    for name, value in measured.items():
        print(f"{name:32} {value:10.2f}")
    return {"rows": rows, "file_mb": size_mb, **measured}


def write(path: Path, rows: int) -> None:
    """Write a table by row groups, with about two rows per patient."""
    random = np.random.default_rng(1)
    writer: pq.ParquetWriter | None = None
    for first in range(0, rows, ROW_GROUP):
        n = min(ROW_GROUP, rows - first)
        x = random.normal(size=(n, 8)).clip(-10, 10)
        stay = np.sin(x[:, 1]) + 0.1 * random.normal(size=n)
        columns: dict[str, Any] = {f"x{i}": x[:, i] for i in range(8)}
        columns["x0"] = pa.array(x[:, 0], mask=random.random(n) < 0.1)
        columns["sex"] = pa.array(random.choice(["f", "m"], n), mask=random.random(n) < 0.05)
        columns["ward"] = pa.array(random.choice(WARDS, n))
        columns["stay"], columns["cost"] = stay, 2 * stay + x[:, 2]
        columns["patient"] = pa.array([f"P{i // 2:09d}" for i in range(first, first + n)])
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=ROW_GROUP)
    if writer is not None:
        writer.close()


def measure(path: Path) -> dict[str, float]:
    """Take part with the table at `path`, and return the time and memory used."""
    from benchmarks.dealing import dealing_of
    from client_sdk.simulation import simulate
    from client_sdk.tables.reading import read_site
    from client_sdk.tables.summary import summarise
    from kernels.rounds.columns import moments
    from kernels.rounds.layer import linear
    from kernels.rounds.program import Program

    start_mb = _peak_mb()
    kernel = KernelSpec(
        inputs=len(SCHEMA.feature_names), samples=64, hidden=(16,), latent=8, seed=1
    )
    site, reading = _timed(lambda: read_site(path, SCHEMA, held_out=0.2, dealing=dealing_of(1)))
    _, summarising = _timed(lambda: summarise(site))
    stages = (moments.Spec(), linear.Spec())
    program = Program(SCHEMA, kernel, stages, max_rows=10**7, held_out=0.2)
    _, sums = _timed(lambda: simulate(program, [site], secure=False))
    peak = _peak_mb()
    return {
        "start_mb": start_mb,
        "peak_mb": peak,
        "peak_over_limit": peak / LIMIT_MB,
        "reading_cpu_s": reading,
        "summary_cpu_s": summarising,
        "sums_cpu_s": sums,
    }


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    done = work()
    return done, time.process_time() - start


def _peak_mb() -> float:
    """Return this process's own peak memory; `ru_maxrss` would start from that of its parent."""
    status = Path("/proc/self/status").read_text()
    (line,) = (each for each in status.splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]))))
