"""`make demo`: five hospitals train one Gaussian process together, on this machine, in a minute.

It starts a coordinator on loopback and five hospitals, each a separate process with 800 generated
patients of its own. A session is created through the REST API; one hospital is killed during the
run and started again; at the end `/predict` is called over HTTP. The output shows the scores of
each hospital alone, of all hospitals together, and of all rows pooled in one place; that the last
two agree; and what left each hospital.

    --keep       leave the coordinator running, and print its address
    --data DIR   run on a folder of CSV files, one per hospital, with the target in the last column
                 or a schema.json beside them; a fifth of each file is kept for the comparison
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from numpy.typing import NDArray

from benchmarks import hospitals
from benchmarks.federation import Federation, FederationFailed
from benchmarks.pictures import BAND, DATA, MEAN, TRUTH, canvas
from client_sdk import simulate
from client_sdk.tables import draft
from client_sdk.tables.column_seen import UNKNOWN
from kernels.model.prediction import predict
from kernels.rounds.known import known, numbers_known
from kernels.rounds.program import Program
from kernels.rounds.site.site import Site
from kernels.scores.metrics import TEN_LEVELS

FOLDER = Path("demo-output")
ROWS, TEST_ROWS = 800, 400
SEED = 7
_VERIFIED = (
    "Sums were blind: the coordinator read none of them, and has the final model, because this "
    "session serves it; the model contains sums over all hospitals. Every hospital read every sum, "
    "verified it, and computed every state and the model itself; a quorum of them signed the model "
    "with their identities (Ed25519). A coordinator that colludes with one of them could read the "
    "sums, and forge totals."
)
KERNEL = {"hidden": [32, 32], "samples": 40, "seed": 1}
"""80 features: the final model has less than half as many numbers as the others' rows have cells,
which is a policy's standard limit for the coordinator. All totals together have far more, and every
hospital reads them: the drafted policies accept that, and that the model is served, and say so."""
STAGES: list[Mapping[str, object]] = [
    {"algorithm": "moments"},
    {"algorithm": "exact", "parameters": {"steps": 40, "penalties": [3.0]}},
    {"algorithm": "linear"},
    {"algorithm": "recalibration"},
    {"algorithm": "evaluation"},
]
Table = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Study:
    """The study: a schema, a training table per hospital, and test rows."""

    schema: Mapping[str, Any]
    tables: Mapping[str, Table]
    test: Table
    truth: NDArray[np.float64] | None

    @property
    def target(self) -> str:
        """The column to predict."""
        name: str = self.schema["targets"][0]["name"]
        return name


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make demo", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    study = generated() if options.data is None else of_folder(options.data)
    shutil.rmtree(options.out, ignore_errors=True)
    began = time.monotonic()
    with Federation.started(options.out) as federation:
        model, session = train_together(federation, study, began)
        compare(federation, study, model, session)
        print(f"\n{time.monotonic() - began:.0f} s in total; logs and plots are in {options.out}/")
        if options.keep:
            print(
                f"\nThe console is at {federation.url}/docs; the admin's token is "
                f"{federation.token}"
            )
            print("Press Ctrl-C to stop.")
            try:
                while True:
                    time.sleep(1)
            except KeyboardInterrupt:
                pass
    return 0


def generated() -> Study:
    """Generate the patients of five hospitals with different case mixes."""
    tables = {mix.name: hospitals.patients(mix, ROWS, 0) for mix in hospitals.MIXES}
    test = hospitals.pooled([hospitals.patients(mix, TEST_ROWS, 1) for mix in hospitals.MIXES])
    return Study(hospitals.SCHEMA, tables, test, hospitals.truth(test))


def of_folder(folder: Path) -> Study:
    """Read one CSV file per hospital; a seeded random fifth of the rows is kept for testing."""
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
    schema = json.loads(drafted.replace(f'"unit": "{UNKNOWN}"', '"unit": "1"'))
    tables, tests = {}, []
    for place, (name, table) in enumerate(read.items()):
        columns = {c: table.column(c).to_numpy(zero_copy_only=False) for c in table.column_names}
        kept = np.random.default_rng([SEED, place]).random(table.num_rows) < 0.2
        tables[name] = {c: cells[~kept] for c, cells in columns.items()}
        tests.append({c: cells[kept] for c, cells in columns.items()})
    return Study(schema, tables, hospitals.pooled(tests), None)


# -- the federation


def least_rows(study: Study) -> int:
    """Return the number of training rows that the program states: a little below the expected."""
    return sum(len(table[study.target]) for table in study.tables.values()) * 3 // 4


def train_together(
    federation: Federation, study: Study, began: float
) -> tuple[str, Mapping[str, Any]]:
    """Create a session, let the hospitals join, train, and kill and restart one of them."""

    def say(what: str) -> None:
        print(f"[{time.monotonic() - began:5.1f} s] {what}", flush=True)

    say(f"the coordinator is listening on {federation.url}")
    session = federation.admin(
        "POST",
        "/sessions",
        {
            "name": "length of stay",
            "schema": study.schema,
            "kernel": KERNEL,
            "stages": STAGES,
            "max_rows": 10_000,
            "held_out": 0.2,
            "least_rows": least_rows(study),
            "members": len(study.tables),
            "privacy": {"differential_privacy": False},
            "model": "served",
        },
    )
    files = {name: federation.folder / f"{name}.csv" for name in study.tables}
    for name, table in study.tables.items():
        pyarrow.csv.write_csv(pa.table(dict(table)), files[name])
    federation.enrol(session["id"], files, policy=None)
    say(f"{len(files)} hospitals start: each has its own process, home and roster file, and the")
    say("policy and data dictionary that it drafted itself, without edits")
    federation.approve(session["id"])
    say("all hospitals are enrolled; their keys match the roster, so the admin approves them")
    run = federation.admin("POST", f"/sessions/{session['id']}/runs", {"kind": "train"})["id"]
    victim = federation.hospitals[len(files) // 2]
    killed = False
    stage = ""

    def seen(latest: Mapping[str, Any]) -> None:
        nonlocal killed, stage
        federation.check_hospitals()
        progress = latest.get("progress") or {}
        now = progress.get("algorithm", "")
        if now and now != stage:
            stage = now
            say(f"stage {progress['stage'] + 1} of {progress['stages']}: {now}")
        if not killed and progress.get("sums", 0) >= 30 and victim.process is not None:
            killed = True
            victim.process.kill()
            say(f"{victim.name} is killed (SIGKILL) after {progress['sums']} sums …")
            victim.process.start()
            say("… and started again: it continues from its journal")

    ended = federation.follow(run, seen=seen, wait_s=600)
    if ended["status"] != "done":
        raise FederationFailed(
            f"the run ended with status {ended['status']}: {ended['code']}: {ended['detail']}"
        )
    say(f"done after {ended['progress']['sums']} secure sums: model {ended['model']}")
    return ended["model"], session


# -- the comparison


def compare(federation: Federation, study: Study, model: str, session: Mapping[str, Any]) -> None:
    """Print the scores alone, federated and pooled; plot; print what left and became known."""
    federated = _asked(federation, study, model)
    print("\ntraining on each hospital alone and on all rows pooled, for comparison …", flush=True)
    agreed = Program.from_json(json.dumps(session["program"]))
    program = replace(agreed, least_rows=1)  # one hospital alone has fewer than all together

    def of(site: Site) -> Mapping[str, NDArray[np.float64]]:
        predicted = predict(simulate(program, [site], secure=False).model, study.test)
        return {
            "mean": predicted.mean[:, 0].numpy(),
            "variance": predicted.variance[:, 0].numpy(),
        }

    # Each row in the part that it has at its hospital: only the hospital's home knows which.
    sites = federation.sites(program)
    everything = of(Site.joined(sites))
    names = [hospital.name for hospital in federation.hospitals]
    rows = {f"{name} alone": of(site) for name, site in zip(names, sites, strict=True)}
    rows |= {"federated": federated, "pooled": everything}
    answers = study.test[study.target].astype(np.float64)
    print(f"\n{'':20} {'RMSE':>8} {'NLL':>8} {'ECE':>8}   on {len(answers)} rows of all hospitals")
    for name, each in rows.items():
        print(f"{name:20} " + " ".join(f"{score:8.3f}" for score in scores(each, answers)))
    deviation = np.sqrt(everything["variance"])
    gap = np.abs(federated["mean"] - everything["mean"]) / deviation
    spread = np.abs(federated["variance"] / everything["variance"] - 1)
    print(
        f"\nfederated = pooled: the means differ by at most {gap.max():.1e} standard deviations, "
        f"the variances by {spread.max():.1e}"
    )
    for path in draw(federation.folder, study, rows, answers):
        print(f"plot: {path}")
    print("\nwhat left each hospital, according to its own journal:")
    for hospital in federation.hospitals:
        print(f"  {hospital.name:12} {federation.departures(hospital)}")
    print("\nwhat became known, without differential privacy:")
    members = len(federation.hospitals)
    print(
        fill(
            numbers_known(known(agreed, members=members, blind=True)),
            98,
            initial_indent="  ",
            subsequent_indent="  ",
        )
    )
    print(fill(_VERIFIED, 98, initial_indent="  ", subsequent_indent="  "))


def _asked(federation: Federation, study: Study, model: str) -> Mapping[str, NDArray[np.float64]]:
    """Call `/predict` over HTTP, as a caller with a token for this model."""
    caller = federation.admin("POST", "/callers", {"name": "demo", "models": [model]})
    features = [column["name"] for column in study.schema["features"]]
    columns = {name: _cells(study.test[name]) for name in features}
    response = httpx.post(
        f"{federation.url}/predict",
        json={"model": model, "columns": columns},
        headers={"Authorization": f"Bearer {caller['token']}"},
        timeout=60,
    )
    if response.status_code != 200:
        raise FederationFailed(f"/predict: {response.status_code} {response.text[:500]}")
    answer = response.json()["targets"][0]
    return {name: np.array(answer[name]) for name in ("mean", "variance")}


def _cells(column: NDArray[np.generic]) -> list[object]:
    return [None if cell != cell else cell for cell in column.tolist()]


def scores(each: Mapping[str, NDArray[np.float64]], answers: NDArray[np.float64]) -> list[float]:
    """Return RMSE, NLL and ECE of Gaussian predictions."""
    errors, variance = each["mean"] - answers, each["variance"]
    nll = 0.5 * (np.log(2 * np.pi * variance) + errors**2 / variance)
    levels, inside = calibration(each, answers)
    return [
        float(np.sqrt((errors**2).mean())),
        float(nll.mean()),
        float(np.abs(inside - levels).mean()),
    ]


def calibration(
    each: Mapping[str, NDArray[np.float64]], answers: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return levels, and the share of answers inside the central interval of each."""
    levels = np.array(TEN_LEVELS)
    z = np.abs(each["mean"] - answers) / np.sqrt(each["variance"])
    halves = torch.special.ndtri(torch.tensor((1 + levels) / 2)).numpy()
    return levels, np.array([(z <= half).mean() for half in halves])


def draw(
    folder: Path,
    study: Study,
    rows: Mapping[str, Mapping[str, NDArray[np.float64]]],
    answers: NDArray[np.float64],
) -> list[Path]:
    """Draw the calibration curves, and predictions with bands against the truth."""
    figure, axes = canvas(1, width=5.4, height=4.6)
    axis = axes[0, 0]
    axis.plot([0, 1], [0, 1], color=DATA, lw=1, ls=":", label="perfect")
    for name, each in rows.items():
        levels, inside = calibration(each, answers)
        if name == "federated":
            axis.plot(levels, inside, color=MEAN, lw=2.5, marker="o", label=name, zorder=3)
        elif name != "pooled":
            axis.plot(levels, inside, color=BAND, lw=1, alpha=0.6)
    axis.plot([], [], color=BAND, lw=1, label="each hospital alone")
    axis.set(xlabel="level of the interval", ylabel="share of rows inside", title="Calibration")
    axis.legend()
    paths = [folder / "calibration.png"]
    figure.savefig(paths[0], dpi=110)
    figure, axes = canvas(2, width=5.4, height=4.6)
    shown = answers if study.truth is None else study.truth
    alone = next(name for name in rows if name.endswith("alone"))
    low, high = float(shown.min()), float(shown.max())
    for axis, name in zip(axes[0], (alone, "federated"), strict=True):
        each = rows[name]
        half = 1.645 * np.sqrt(each["variance"])
        order = np.argsort(each["mean"])[:: max(1, len(shown) // 400)]
        axis.errorbar(
            shown[order], each["mean"][order], yerr=half[order], fmt="none", color=BAND, alpha=0.18
        )
        axis.plot(shown[order], each["mean"][order], ".", color=MEAN, ms=3)
        axis.plot([low, high], [low, high], color=TRUTH, lw=1.5)
        unit = study.schema["targets"][0]["unit"]
        kind = "observed" if study.truth is None else "true"
        axis.set(
            xlabel=f"{kind} {study.target} ({unit})",
            ylabel=f"predicted {study.target} ({unit}), 90 % band",
            title=name,
            ylim=(low - 4, high + 4),
        )
    paths.append(folder / "predictions.png")
    figure.savefig(paths[1], dpi=110)
    return paths


if __name__ == "__main__":
    sys.exit(main())
