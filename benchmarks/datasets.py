"""The five regression sets of [FedBNR], split and dealt to clients as we read its §3.2.2.

Files are named `NAME.csv.gz` in the `--data` folder, with a header, numbers only, and the target in
the last column. They are public UCI sets (the README lists their names) and never part of this
repository.
"""

import csv
import gzip
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.dealing import dealing_of
from kernels.rounds.site.site import Part, Site
from kernels.tables.records import Records
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target

Matrix = NDArray[np.float64]

FILES: Mapping[str, str] = {
    "skillcraft": "skillcraft",
    "sml": "sml",
    "parkinsons": "parkinsons",
    "bike": "bike_seoul",
    "ccpp": "ccpp",
}
STANDARDISED_TARGET = {"bike"}
"""[FedBNR] reports Bike on z-scored counts and the other sets in their own units."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """One set as a table with its schema."""

    name: str
    schema: Schema
    rows: Matrix

    @classmethod
    def load(cls, name: str, folder: Path) -> "Dataset":
        """Read a set; if its file is missing, the error states where to get it."""
        path = folder / f"{FILES[name]}.csv.gz"
        if not path.exists():
            sys.exit(f"{path} is not there: the README says where the UCI sets come from (--data)")
        with gzip.open(path, "rt", newline="") as file:
            reader = csv.reader(file)
            header = next(reader)
            rows = np.array([[float(cell) for cell in row] for row in reader])
        if name in STANDARDISED_TARGET:
            rows[:, -1] = (rows[:, -1] - rows[:, -1].mean()) / rows[:, -1].std()
        features = tuple(Numeric(column, "1") for column in header[:-1])
        return cls(name, Schema(features, (Target(header[-1], "1"),)), rows)

    def split(self, *, clients: int, seed: int, public: float = 0.0) -> "Split":
        """Split 8:1:1 at random; sort by the most correlated input; deal two chunks to each client.

        The validation rows are dealt evenly; each client uses half of its own for stopping and half
        for calibration. A share of the validation rows, `public`, is given to no client.
        """
        random = np.random.default_rng(seed)
        count = len(self.rows)
        order = random.permutation(count)
        training = int(0.8 * count)
        test = (count - training) // 2
        rows = self.rows[order[:training]]
        correlations = np.atleast_2d(np.corrcoef(self.rows.T))[-1, :-1]
        leading = int(np.nanargmax(np.abs(correlations)))
        rows = rows[np.argsort(rows[:, leading], kind="stable")]
        chunks = np.array_split(rows, 2 * clients)
        dealt = random.permutation(2 * clients)
        validation = self.rows[order[training + test :]]
        shared = int(public * len(validation))
        held_out = np.array_split(validation[shared:], 2 * clients)
        sites = tuple(
            Site(
                {
                    Part.TRAINING: self.records(
                        np.concatenate([chunks[dealt[2 * i]], chunks[dealt[2 * i + 1]]])
                    ),
                    Part.STOPPING: self.records(held_out[2 * i]),
                    Part.CALIBRATION: self.records(held_out[2 * i + 1]),
                },
                dealing=dealing_of(seed),
            )
            for i in range(clients)
        )
        tested = self.rows[order[training : training + test]]
        # The client whose chunk a test row would have fallen into.
        edges = [chunk[0, leading] for chunk in chunks[1:]]
        owner = np.empty(2 * clients, dtype=np.int64)
        owner[dealt] = np.arange(2 * clients) // 2
        like = owner[np.searchsorted(edges, tested[:, leading], side="right")]
        return Split(self, sites, tested, like, validation[:shared])

    def table(self, rows: Matrix) -> dict[str, Matrix]:
        """Return rows by column name."""
        names = [column.name for column in self.schema.numeric]
        names += [target.name for target in self.schema.targets]
        return dict(zip(names, rows.T, strict=True))

    def records(self, rows: Matrix) -> Records:
        """Return rows as records; there may be none."""
        if len(rows):
            return Records.for_training(self.schema, self.table(rows))
        some = Records.for_training(self.schema, self.table(self.rows[:1]))
        return some.take(some.missing.new_zeros(1))


@dataclass(frozen=True, eq=False)
class Split:
    """Sites with their parts, and the test rows that are never trained on.

    like: for each test row, the client that similar rows were dealt to. public: rows that belong to
    no client.
    """

    dataset: Dataset
    sites: tuple[Site, ...]
    test: Matrix
    like: NDArray[np.int64]
    public: Matrix

    def pooled(self) -> Site:
        """Return one site that contains all rows, part by part."""
        return Site.joined(self.sites)
