"""How long the shell keeps people waiting: wall time of commands over that of `import pyarrow`.

Every command is a new process on a warm disk, as a person types it: a home after a run of 80 sums,
a table of 1,000 rows. In each round `python -c "import pyarrow"` runs too, which any tool that
reads a table waits for; a command's ratio is the median over rounds of its time divided by that.

cli_over_pyarrow_import    the ratio of the slowest command
"""

import json
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.registry import Figures
from benchmarks.targets import Target
from client_sdk.home.disclosures import EnteredRun
from client_sdk.home.home import Home
from client_sdk.home.remembered import Departure, KnownRun
from privacy.securesum.records import Step

BAR = Target("cli_over_pyarrow_import", 3.0)
ROWS = 1_000
SUMS = 80
_IMPORT = [sys.executable, "-c", "import pyarrow"]
_VEILGP = [sys.executable, "-m", "client_sdk"]
_SCHEMA = {
    "version": 1,
    "features": [
        {"kind": "numeric", "name": "age", "unit": "a", "lower": 0, "upper": 120},
        {"kind": "numeric", "name": "lactate", "unit": "mmol/l", "may_be_missing": True},
        {"kind": "categorical", "name": "ward", "levels": ["medical", "surgical"]},
    ],
    "targets": [{"name": "stay", "unit": "d"}],
}


def run(options: Namespace) -> Figures:
    rounds = 3 if options.quick else 15
    with tempfile.TemporaryDirectory() as folder:
        commands = _prepared(Path(folder))
        _seconds(_IMPORT)  # the first of each fills the disk's cache
        for command in commands.values():
            _seconds(command)
        measured = [
            {name: _seconds(command) for name, command in {"": _IMPORT, **commands}.items()}
            for _ in range(rounds)
        ]
    ratios = {name: median(each[name] / each[""] for each in measured) for name in commands}
    for name, ratio in ratios.items():
        print(f"{name:18} {median(each[name] for each in measured):7.3f} s {ratio:6.2f}")
    print(f"{'import pyarrow':18} {median(each[''] for each in measured):7.3f} s")
    slowest = max(ratios, key=lambda name: ratios[name])
    print(BAR.line(ratios[slowest]))
    return {
        BAR.figure: ratios[slowest],
        "slowest": slowest,
        "slowest_s": median(each[slowest] for each in measured),
        "pyarrow_import_s": median(each[""] for each in measured),
        "rounds": rounds,
        **{f"over_pyarrow_{name.replace(' ', '_')}": ratio for name, ratio in ratios.items()},
    }


def _prepared(folder: Path) -> Mapping[str, Sequence[str]]:
    """Write a table, its schema, a policy and a home, and return the commands that read them."""
    random = np.random.default_rng(1)
    lines = [
        f"{age:.0f},{lactate:.2f},{ward},{stay:.1f}"
        for age, lactate, ward, stay in zip(
            random.uniform(18, 95, ROWS),
            random.uniform(0.5, 9, ROWS),
            random.choice(["medical", "surgical"], ROWS),
            random.uniform(0, 30, ROWS),
            strict=True,
        )
    ]
    table, schema, policy = (folder / name for name in ("table.csv", "schema.json", "site.toml"))
    table.write_text("\n".join(["age,lactate,ward,stay", *lines]))
    schema.write_text(json.dumps(_SCHEMA))
    policy.write_text('algorithms = ["moments", "exact"]\nwithout_differential_privacy = true\n')
    _fill(folder / "home")
    home = ["--home", str(folder / "home")]
    arguments: dict[str, list[str]] = {
        "help": ["--help"],
        "version": ["--version"],
        "schema draft": ["schema", "draft", str(table), "--target", "stay"],
        "check": ["check", str(table), "--schema", str(schema)],
        "identity": ["identity", *home],
        "log": ["log", *home],
        "ledger": ["ledger", *home, "--policy", str(policy)],
        "doctor": ["doctor", "hospital", *home, "--policy", str(policy)],
    }
    return {name: [*_VEILGP, *given] for name, given in arguments.items()}


def _fill(path: Path) -> None:
    """Make a home as it is after a run without differential privacy."""
    entered = EnteredRun("r", "s", "table", "now", "p" * 64, "d" * 64, "e" * 64, True, 100, 900, 80)
    with Home(path).open() as home:
        own = KnownRun("r", "s", "train", "{}", "done")
        home.store.commit(Step(None), run=own, entered=entered)
        for number in range(1, SUMS + 1):
            departure = Departure(
                at="2026-11-19T21:00:00+00:00",
                session="s",
                run="r",
                epoch=0,
                slot=number - 1,
                stage=min(number - 1, 1),
                algorithm="exact/2",
                blocks='["scatter"]',
                elements=5_000,
                octets=40_000,
                sha256="ab" * 32,
                sum_number=number,
            )
            home.store.commit(Step(None), departure=departure)


def _seconds(command: Sequence[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begun
