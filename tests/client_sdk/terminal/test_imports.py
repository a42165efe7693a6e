"""What commands import: nobody waits for torch to be told what a table's schema is.

All of them run in one new process, one after the other: what any of them imports is still there at
the end.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import csv, parquet

import client_sdk
import kernels
from client_sdk.home.home import Home
from client_sdk.home.identity_text import identity_lines
from client_sdk.home.remembered import Charge, Departure, KnownRun, KnownSession
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Target
from privacy.accounting.events import Release
from privacy.ledger import Entry
from privacy.securesum.records import Step
from tests.client_sdk.private import PROGRAM

HEAVY = (
    *("torch", "gpytorch", "linear_operator", "opacus", "scipy", "opendp", "matplotlib", "sklearn"),
    *("fastapi", "uvicorn", "sqlalchemy", "httpx", "pandas", "polars", "rich"),
)
OF_TABLES = ("narwhals", "pyarrow")
RUNNER = """
import json, sys
from client_sdk.terminal.command import application

for arguments in json.loads(sys.argv[1]):
    try:
        application()(arguments)
    except SystemExit as ended:
        assert ended.code in (None, 1 if "misfit" in arguments[-1] else 0), (arguments, ended.code)
print("\\n" + json.dumps([name for name in json.loads(sys.argv[2]) if name in sys.modules]))
"""


def imported(commands: list[list[str]], names: tuple[str, ...]) -> list[str]:
    """Run commands in a new process, and return which of some packages they have imported."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, json.dumps(commands), json.dumps(names)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home from which a vector has left, with noise, and for which a policy is there."""
    with Home(tmp_path / "home").open() as opened:
        store = opened.store
        departure = Departure("now", "s", "r", 0, 0, 0, "moments/3", '["n"]', 7, 64, "ab", 1)
        store.commit(Step(None), run=KnownRun("r", "s", "train", "{}"), departure=departure)
        store.remember_session(KnownSession("s", "a", "stay", "A", PROGRAM.to_json(), b""))
        release = Release(
            statistic="moments",
            part="training",
            multiplier=4.0,
            dimension=7,
            share_deviation=2**30,
            honest=3,
        )
        store.charge(Charge.of("table", Entry(0.0, "s", "r", 0, 0, release), rows=b"\1" * 32))
    (tmp_path / "site.toml").write_text(
        'algorithms = ["moments", "linear"]\nepsilon = 1.0\ndelta = 1e-5\n'
        '[recipes]\nkernels = ["rbf"]\n[dictionary.age]\nunit = "a"\n'
    )
    return tmp_path / "home"


def test_commands_without_a_table_wait_for_no_library_that_they_do_not_need(home: Path) -> None:
    own, policy = ["--home", str(home)], ["--policy", str(home.parent / "site.toml")]
    lines = home.parent / "north.txt"
    lines.write_text("\n".join(identity_lines(Home(home).identity().key, "North")))
    commands = [
        ["--version"],
        ["--help"],
        ["join", "--help"],
        ["identity", *own],
        ["identity", "--home", str(home.parent / "new")],
        ["roster", str(lines), *own],
        ["log", *own],
        ["log", "--all", *own],
        ["ledger", *own],
        ["ledger", *policy, *own],
        ["doctor", "hospital", *policy, *own],
    ]
    assert imported(commands, HEAVY + OF_TABLES) == []


def test_commands_that_read_a_table_wait_for_arrow_alone(tmp_path: Path) -> None:
    table, schema = tmp_path / "table.csv", tmp_path / "schema.json"
    rows = [f"{20 + i if i % 9 else ''},{'mf'[i % 2]},{i / 7}\n" for i in range(60)]
    table.write_text("age,sex,stay\n" + "".join(rows))
    features = Numeric("age", "a", may_be_missing=True), Categorical("sex", ("f", "m"))
    schema.write_text(Schema(features, (Target("stay", "d"),)).to_json())
    parquet.write_table(csv.read_csv(table), tmp_path / "table.parquet")
    misfit = tmp_path / "misfit.json"
    misfit.write_text(schema.read_text().replace('"m"', '"x"'))
    commands = [
        ["check", str(tmp_path / "table.parquet"), "--schema", str(schema)],
        ["check", str(tmp_path / "table.parquet"), "--schema", str(misfit)],
        ["schema", "draft", str(table), "--target", "stay"],
        ["schema", "merge", str(schema), str(schema)],
        ["check", str(table), "--schema", str(schema)],
        ["check", str(table)],
    ]
    assert imported(commands, HEAVY + OF_TABLES) == ["pyarrow"]


def test_the_public_names_are_there_though_nothing_is_imported_before_they_are_used() -> None:
    program = (
        "import sys, client_sdk, kernels; kernels.Schema; "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    for package in (client_sdk, kernels):
        assert {*package.__all__} <= {*dir(package)}
        assert all(getattr(package, name) is not None for name in package.__all__)
        with pytest.raises(AttributeError, match="no_such_name"):
            _ = package.no_such_name
    assert client_sdk.join.__module__ == "client_sdk.joining"
