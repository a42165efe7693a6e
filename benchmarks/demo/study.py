"""What the demo is about: the hospitals' tables, and the session that they take part in."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pyarrow.csv
from numpy.typing import NDArray

from benchmarks import hospitals
from benchmarks.federation import Federation, FederationFailed
from client_sdk.home.home import Home
from client_sdk.reviewing import review
from client_sdk.session_body import program_and_terms
from client_sdk.tables.draft import draft
from client_sdk.tables.draft_limits import UNKNOWN
from kernels.rounds.stated.band import band_of
from kernels.tables.schema import Schema
from kernels.tables.targets import Binary, Target
from privacy.securesum.terms import LEAST_COHORT

ROWS, TEST_ROWS = 800, 400
SEED = 7
FEW_ROWS = 256
"""If a file has fewer rows, a tenth of each is kept for the comparison instead of a fifth."""
MAX_SUMS = 60
"""Enough for a lengthscale for each column; networks need more."""
Table = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Study:
    """The study: a schema, a training table per hospital, and test rows."""

    schema: Schema
    tables: Mapping[str, Table]
    test: Table
    truth: NDArray[np.float64] | None
    name: str
    few_rows: bool = False
    """Whether the program is made to fit the smallest table."""

    @property
    def smallest_table(self) -> int | None:
        """How many rows the smallest hospital has, as a session states it."""
        rows = min(len(next(iter(table.values()))) for table in self.tables.values())
        return band_of(rows) if self.few_rows else None

    @property
    def number(self) -> Target | None:
        """The first target that is a number."""
        return next(iter(self.schema.real), None)

    @property
    def yes_or_no(self) -> Binary | None:
        """The first target that is a yes or no."""
        return next((own for own in self.schema.outcomes if isinstance(own, Binary)), None)


def generated() -> Study:
    """Generate the patients of five hospitals with different case mixes."""
    tables = {mix.name: hospitals.followed_up(mix, ROWS, 0) for mix in hospitals.MIXES}
    test = hospitals.pooled([hospitals.followed_up(mix, TEST_ROWS, 1) for mix in hospitals.MIXES])
    targets = [*hospitals.SCHEMA["targets"], hospitals.READMITTED]
    schema = Schema.from_json(json.dumps({**hospitals.SCHEMA, "targets": targets}))
    return Study(schema, tables, test, hospitals.truth(test), "stay and readmission")


def of_folder(folder: Path) -> Study:
    """Read one CSV file per hospital; seeded random rows of each are kept for testing."""
    files = sorted(folder.glob("*.csv"))
    if len(files) < 3:
        raise FederationFailed(
            f"{folder} contains {len(files)} CSV files, but a cohort needs at least 3: add one "
            "file per hospital"
        )
    read = {file.stem: pyarrow.csv.read_csv(file) for file in files}
    own = folder / "schema.json"
    target = next(iter(read.values())).column_names[-1]
    drafted = own.read_text() if own.exists() else draft(folder, targets=[target]).to_json()
    schema = Schema.from_json(drafted.replace(f'"unit": "{UNKNOWN}"', '"unit": "1"'))
    share = 0.2 if min(table.num_rows for table in read.values()) >= FEW_ROWS else 0.1
    tables, tests = {}, []
    for place, (name, table) in enumerate(read.items()):
        columns = {c: table.column(c).to_numpy(zero_copy_only=False) for c in table.column_names}
        kept = np.random.default_rng([SEED, place]).random(table.num_rows) < share
        tables[name] = {c: cells[~kept] for c, cells in columns.items()}
        tests.append({c: cells[kept] for c, cells in columns.items()})
    name = " and ".join(target.name for target in schema.targets)
    return Study(schema, tables, hospitals.pooled(tests), None, name, few_rows=True)


def stated(study: Study) -> Mapping[str, Any]:
    """Return the body of `POST /sessions`."""
    smallest = study.smallest_table
    return {
        "name": study.name,
        "schema": json.loads(study.schema.to_json()),
        "members": len(study.tables),
        "privacy": {"differential_privacy": False},
        "model": "served",
        "max_sums": MAX_SUMS,
        **({} if smallest is None else {"smallest_table": smallest}),
    }


def taking_part(
    federation: Federation, study: Study, files: Mapping[str, Path], say: Callable[[str], None]
) -> Study:
    """Return the study without hospitals whose policies, as drafted, would refuse their tables.

    Each tries its table on the session before there is one, as `veilgp check` does.
    """
    while True:
        program, terms = program_and_terms(json.dumps(stated(study)))
        refused = {}
        for name in study.tables:
            home = federation.folder / name / "home"
            Home(home).identity()
            found = review(program, terms, files[name], home=home)
            if found.problems:
                refused[name] = found.problems[0]
        if not refused:
            return study
        for name, problem in refused.items():
            say(f"{name} does not take part; at home it reads why:")
            print(fill(str(problem), 98, initial_indent="    ", subsequent_indent="    "))
        tables = {name: own for name, own in study.tables.items() if name not in refused}
        if len(tables) < LEAST_COHORT:
            raise FederationFailed(
                f"{len(tables)} hospitals are left, but a cohort needs at least {LEAST_COHORT}: "
                "add hospitals with more rows, or predict something else"
            )
        study = replace(study, tables=tables)
