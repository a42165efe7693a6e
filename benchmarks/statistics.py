"""(S, b) of 200,000 rows against bare BLAS, and memory that does not grow with the rows.

`over_blas`: CPU seconds of `Statistics.of_features` on precomputed float64 features, divided by
those of bare scipy syrk + gemv on the same array, medians of interleaved repetitions. Also
reported: feature computation relative to bare BLAS, and the growth of peak memory from 200,000 to
2,000,000 rows of a table, which the chunk size bounds (features alone would need 8 GB).
"""

import resource
import statistics as summary
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable

import numpy as np
import torch
from scipy.linalg.blas import dgemv, dsyrk

from benchmarks.registry import Figures
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK
from kernels.layer.statistics import Statistics
from kernels.tables.chunks import chunks

FEATURES = 500
INPUTS = 10


def _cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _peak_megabytes(rows: int) -> float:
    """Return the peak memory of a new process that sums over a table of `rows` rows."""
    command = [sys.executable, "-m", "benchmarks.statistics", str(rows)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(finished.stdout)


def _sum_over_rows(rows: int) -> float:
    kernel = URK(KernelSpec(inputs=INPUTS, samples=FEATURES // 2, hidden=(32,)))
    x = torch.zeros(rows, INPUTS, dtype=torch.float64).normal_(
        generator=torch.Generator().manual_seed(0)
    )
    Statistics.of_table(kernel, x, x[:, 0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(options: Namespace) -> Figures:
    # This comes first because a process inherits the peak of the process that started it.
    small, large = (20_000, 200_000) if options.quick else (200_000, 2_000_000)
    growth = _peak_megabytes(large) - _peak_megabytes(small)
    table = (large - small) * INPUTS * 8 / 2**20
    whole = large * FEATURES * 8 / 2**20
    print(f"peak memory from {small:,} to {large:,} rows: +{growth:.0f} MB")
    print(f"of which the table itself {table:.0f} MB; all features would be {whole:.0f} MB")

    rows = 50_000 if options.quick else 200_000
    repetitions = 3 if options.quick else 5
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(rows, FEATURES, generator=generator, dtype=torch.float64)
    targets = torch.randn(rows, generator=generator, dtype=torch.float64)
    columns, y = features.mT.numpy(), targets.numpy()

    def bare() -> tuple[object, object]:
        return dsyrk(1.0, columns), dgemv(1.0, columns, y)

    def ours() -> object:
        return Statistics.of_features(features, targets)

    def in_chunks() -> object:
        return Statistics.of_chunks(
            ((features[rows], targets[rows]) for rows in chunks(len(y), 8192)),
            features=features.shape[1],
        )

    kernel = URK(KernelSpec(inputs=INPUTS, samples=FEATURES // 2, hidden=(128, 128, 128)))
    x = torch.randn(rows, INPUTS, generator=generator, dtype=torch.float64)

    def with_features() -> object:
        return Statistics.of_table(kernel, x, targets)

    scatter = Statistics.of_features(features, targets).scatter.numpy()
    difference = np.triu(dsyrk(1.0, columns) - scatter)
    times: dict[str, list[float]] = {"bare": [], "ours": [], "in chunks": [], "with features": []}
    for _ in range(repetitions):
        times["bare"].append(_cpu_seconds(bare))
        times["ours"].append(_cpu_seconds(ours))
        times["in chunks"].append(_cpu_seconds(in_chunks))
        times["with features"].append(_cpu_seconds(with_features))
    median = {name: summary.median(values) for name, values in times.items()}
    for name, seconds in median.items():
        print(f"{name:16} {seconds:8.3f} CPU s for {rows:,} rows of {FEATURES} features")
    return {
        "over_blas": median["ours"] / median["bare"],
        "in_chunks_over_blas": median["in chunks"] / median["bare"],
        "with_features_over_blas": median["with features"] / median["bare"],
        "largest_difference_from_blas": float(np.abs(difference).max()),
        "memory_growth_over_table": growth / table,
        "memory_growth_over_all_features": growth / whole,
    }


if __name__ == "__main__":
    print(_sum_over_rows(int(sys.argv[1])))
