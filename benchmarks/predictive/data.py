"""The five regression sets of [PredBayes], split honestly, or as their tables were made.

Files are `NAME.csv.gz` in the folder of `--data`, as for `datasets`. Honestly: a random fifth is
for testing, bike is without its leak, -200 is missing, and nothing is standardised here: that is
the federation's first sum. As printed: the first 80 % of the file are for training, every column is
z-scored over the whole file, and the leak, the row number and the -200 are left in.
"""

import csv
import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.dealing import dealing_of
from kernels.features.spec import KernelSpec
from kernels.model.model import Model, known
from kernels.rounds.program import Program
from kernels.rounds.site.site import Site
from kernels.tables.records import Records
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target

Matrix = NDArray[np.float64]

CLIENTS = 5
FILES: Mapping[str, tuple[str, str]] = {
    "air": ("airquality", "airquality_all"),
    "bike": ("bike_day", "bike_day_leaky"),
    "wine": ("wine_red", "wine_red"),
    "estate": ("real_estate", "real_estate"),
    "forest": ("forest_fires", "forest_fires"),
}
"""Each set's file, and the one that [PredBayes]'s tables were made from."""
SPLITS = ("homogeneous", "sorted")

_MISSING = -200.0


@dataclass(frozen=True, eq=False)
class Honest:
    """Sites with their rows, and rows for everyone and for nobody; the target is the last column.

    public: inputs for distillation, their labels never read. test: rows nobody trains on.
    """

    schema: Schema
    sites: tuple[Site, ...]
    public: Matrix
    test: Matrix

    def table(self, rows: Matrix) -> dict[str, Matrix]:
        """Return rows by column name."""
        names = [column.name for column in self.schema.numeric]
        names += [target.name for target in self.schema.targets]
        return dict(zip(names, rows.T, strict=True))

    def program(self, *stages: object, kernel: KernelSpec | None = None) -> Program:
        """Return a program of these stages; without a kernel, one that none of them reads."""
        plain = KernelSpec(inputs=len(self.schema.feature_names), latent=8, seed=1)
        return Program(self.schema, kernel or plain, stages, max_rows=10_000)

    def standardised_test(self, model: Model) -> tuple[Tensor, Tensor]:
        """Return the test rows' features and targets as the model has them."""
        records = Records.for_training(self.schema, self.table(self.test))
        standardised = known(model.standardiser, "moments").apply(records)
        return standardised.features, known(standardised.targets, "moments")


def honest(name: str, data: Path, *, split: str, seed: int) -> Honest:
    """Split at random 80:20, keep a fifth of the former public, and deal the rest to five sites.

    sorted: by the input with the largest |r| with the target, into consecutive blocks.
    """
    header, rows = _read(data / f"{FILES[name][0]}.csv.gz")
    rows = np.where(rows == _MISSING, np.nan, rows)
    random = np.random.default_rng(seed)
    rows = rows[random.permutation(len(rows))]
    training = int(0.8 * len(rows))
    public, pool = np.split(rows[:training], [training // 5])
    gaps = [bool(np.isnan(column).any()) for column in rows.T]
    schema = Schema(
        tuple(
            Numeric(column, "1", may_be_missing=gap)
            for column, gap in zip(header[:-1], gaps[:-1], strict=True)
        ),
        (Target(header[-1], "1"),),
    )
    if split == "sorted":
        leading = _most_correlated(rows)
        pool = pool[np.argsort(np.nan_to_num(pool[:, leading], nan=-np.inf), kind="stable")]
    blocks = np.array_split(pool, CLIENTS)
    found = Honest(schema, (), public, rows[training:])
    sites = tuple(
        Site.of_table(schema, found.table(block), held_out=0.2, dealing=dealing_of(seed))
        for block in blocks
    )
    return Honest(schema, sites, public, rows[training:])


@dataclass(frozen=True, eq=False)
class Printed:
    """Z-scored rows of each client, of the server and for testing; the target comes last."""

    clients: tuple[Matrix, ...]
    server: Matrix
    test: Matrix


def as_printed(name: str, data: Path, *, split: str, seed: int) -> Printed:
    """Split as the code of [PredBayes] does.

    sorted: by the column with the largest variance of the clients' rows after the z-score.
    """
    _, rows = _read(data / f"{FILES[name][1]}.csv.gz")
    if name == "estate":
        rows = np.column_stack([np.arange(1.0, len(rows) + 1), rows])
    rows = (rows - rows.mean(0)) / rows.std(0)
    training = int(0.8 * len(rows))
    order = np.random.default_rng(seed).permutation(training)
    server, pool = np.split(rows[order], [training // 5])
    if split == "sorted":
        leading = int(np.argmax(pool[:, :-1].var(0)))
        pool = pool[np.argsort(pool[:, leading], kind="stable")]
    size = len(pool) // CLIENTS
    blocks = np.split(pool, [size * client for client in range(1, CLIENTS)])
    return Printed(tuple(blocks), server, rows[training:])


def _most_correlated(rows: Matrix) -> int:
    known = rows[~np.isnan(rows).any(1)]
    return int(np.nanargmax(np.abs(np.atleast_2d(np.corrcoef(known.T))[-1, :-1])))


def _read(path: Path) -> tuple[list[str], Matrix]:
    with gzip.open(path, "rt", newline="") as file:
        reader = csv.reader(file)
        header = next(reader)
        return header, np.array([[float(cell) for cell in row] for row in reader])
