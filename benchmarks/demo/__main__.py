"""`make demo`: five hospitals train one Gaussian process together, on this machine, in a minute.

It starts a coordinator on loopback and five hospitals, each a separate process with 800 generated
patients of its own. A session is created through the REST API; one hospital is killed during the
run and started again; at the end `/predict` is called over HTTP. The model predicts the length of
stay, a number, and whether a patient is readmitted within 30 days, a yes or no. The output shows
the scores of each hospital alone, of all hospitals together, and of all rows pooled in one place;
that the last two agree; what the model says of one patient; and what left each hospital.

    --keep       leave the coordinator running, and print its address
    --data DIR   run on a folder of CSV files, one per hospital, with the target in the last column
                 or a schema.json beside them; a fifth of each file is kept for the comparison
                 (of small ones a tenth), and the program is made to fit the smallest file
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from numpy.typing import NDArray

from benchmarks.demo import binary
from benchmarks.demo.study import Study, generated, of_folder, stated, taking_part
from benchmarks.federation import Federation, FederationFailed
from benchmarks.pictures import BAND, DATA, MEAN, TRUTH, canvas
from client_sdk import simulate
from client_sdk.errors import ClientError
from kernels.errors import KernelsError
from kernels.model.model import Model
from kernels.model.prediction import predict
from kernels.rounds.known import known
from kernels.rounds.plan import stages_disclosed
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.rounds.site.site import Site
from kernels.rounds.stated.numbers_known import numbers_known
from kernels.scores.metrics import TEN_LEVELS
from kernels.tables.targets import Target

FOLDER = Path("demo-output")
_VERIFIED = (
    "Sums were blind: the coordinator read none of them, and has the final model, because this "
    "session serves it; the model contains sums over all hospitals. Every hospital read every sum, "
    "verified it, and computed every state and the model itself; a quorum of them signed the model "
    "with their identities (Ed25519). A coordinator that colludes with one of them could read the "
    "sums, and forge totals."
)
Columns = Mapping[str, NDArray[np.float64]]
"""Predictions: `mean` and `variance` of the number, `chance` of the yes or no."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make demo", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        return demonstrate(options)
    except (FederationFailed, ClientError, KernelsError) as error:
        print(f"\nThe demo ends here: {error}", file=sys.stderr)
        return 1


def demonstrate(options: argparse.Namespace) -> int:
    """Run the whole demo; what is not possible is raised as a named error."""
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


# -- the federation


def train_together(
    federation: Federation, study: Study, began: float
) -> tuple[str, Mapping[str, Any]]:
    """Create a session, let the hospitals join, train, and kill and restart one of them."""

    def say(what: str) -> None:
        print(f"[{time.monotonic() - began:5.1f} s] {what}", flush=True)

    files = {name: federation.folder / f"{name}.csv" for name in study.tables}
    for name, table in study.tables.items():
        pyarrow.csv.write_csv(pa.table(dict(table)), files[name])
    study = taking_part(federation, study, files, say)
    say(f"the coordinator is listening on {federation.url}; a session states a name, a schema,")
    say("members, privacy and who gets the model (and here the most sums, as a demo is short), and")
    say("the coordinator makes the program:")
    session = federation.admin("POST", "/sessions", stated(study))
    for sentence in session["in_words"]:
        print(fill(sentence, 98, initial_indent="    ", subsequent_indent="      "))
    files = {name: files[name] for name in study.tables}
    federation.enrol(session["id"], files, policy=None)
    say(f"{len(files)} hospitals start: each has its own process and home, and has approved the")
    say("roster, and the policy with data dictionary that it drafted itself, without edits")
    federation.approve(session["id"])
    say("all hospitals are enrolled; their keys match the roster, so the admin approves them")
    run = federation.admin("POST", f"/sessions/{session['id']}/runs", {"kind": "train"})["id"]
    victim = federation.hospitals[len(files) // 2]
    program = Program.from_json(json.dumps(session["program"]))
    in_the_middle = min(30, sum(stage.sums for stage in stages_disclosed(program)) // 3)
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
        if not killed and progress.get("sums", 0) >= in_the_middle and victim.process is not None:
            killed = True
            victim.process.kill()
            say(f"{victim.name} is killed (SIGKILL) after {progress['sums']} sums …")
            victim.process.start()
            say("… and started again: it continues from its journal")

    ended = federation.follow(run, seen=seen, wait_s=1800)
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

    def of(site: Site) -> Columns:
        return _predicted(study, simulate(program, [site], secure=False).model)

    # Each row in the part that it has at its hospital: only the hospital's home knows which.
    sites = federation.sites(program)
    everything = of(Site.joined(sites))
    names = [hospital.name for hospital in federation.hospitals]
    rows = {f"{name} alone": of(site) for name, site in zip(names, sites, strict=True)}
    rows |= {"federated": federated, "pooled": everything}
    print(f"\nscores on {len(study.test[study.schema.targets[0].name])} rows of all hospitals")
    if study.number is not None:
        compare_numbers(federation.folder, study, study.number, rows)
    if study.yes_or_no is not None:
        target = study.yes_or_no
        chances = {name: each["chance"] for name, each in rows.items()}
        binary.print_scores(target, chances, study.test[target.name])
        gap = np.abs(federated["chance"] - everything["chance"]).max()
        print(f"federated = pooled: the probabilities differ by at most {gap:.1e}")
        card = federation.admin("GET", f"/models/{model}")
        print(f"plot: {binary.draw(federation.folder, target, card)}")
    show_one_patient(study, restore(federation.artifact(model)))
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


def compare_numbers(
    folder: Path, study: Study, target: Target, rows: Mapping[str, Columns]
) -> None:
    """Print the scores of a number, and how far federated is from pooled; plot."""
    answers = study.test[target.name].astype(np.float64)
    print(f"\n{f'{target.name} ({target.unit})':20} {'RMSE':>8} {'NLL':>8} {'ECE':>8}")
    for name, each in rows.items():
        print(f"{name:20} " + " ".join(f"{score:8.3f}" for score in scores(each, answers)))
    federated, pooled = rows["federated"], rows["pooled"]
    gap = np.abs(federated["mean"] - pooled["mean"]) / np.sqrt(pooled["variance"])
    spread = np.abs(federated["variance"] / pooled["variance"] - 1)
    print(
        f"federated = pooled: the means differ by at most {gap.max():.1e} standard deviations, "
        f"the variances by {spread.max():.1e}"
    )
    for path in draw(folder, study, target, rows, answers):
        print(f"plot: {path}")


def show_one_patient(study: Study, model: Model) -> None:
    """Print what the model says of one test row, as a hospital sees it at home."""
    place = len(study.test[study.schema.targets[0].name]) // 2
    features = [column.name for column in study.schema.features]
    row = {name: study.test[name][place : place + 1] for name in features}
    predicted = predict(model, row)
    print("\none patient: " + ", ".join(f"{name} {cells[0]}" for name, cells in row.items()))
    if study.number is not None:
        low, high = (float(end[0, 0]) for end in predicted.conformal(0.9))
        print(
            f"  {study.number.name}: {float(predicted.mean[0, 0]):.1f} {study.number.unit}, in 90% "
            f"of cases from {low:.1f} to {high:.1f}"
        )
    if study.yes_or_no is not None:
        print(f"  {binary.sentence(study.yes_or_no, predicted)}")


def _predicted(study: Study, model: Model) -> Columns:
    """Return a model's predictions of the test rows."""
    predicted = predict(model, study.test)
    found: dict[str, NDArray[np.float64]] = {}
    if study.number is not None:
        found["mean"] = predicted.mean[:, 0].numpy()
        found["variance"] = predicted.variance[:, 0].numpy()
    if study.yes_or_no is not None:
        found["chance"] = predicted.outcome(study.yes_or_no.name).mean.numpy()
    return found


def _asked(federation: Federation, study: Study, model: str) -> Columns:
    """Call `/predict` over HTTP, as a caller with a token for this model."""
    caller = federation.admin(
        "POST", "/callers", {"name": "demo", "models": [model], "trusted": True}
    )
    columns = {column.name: _cells(study.test[column.name]) for column in study.schema.features}
    response = httpx.post(
        f"{federation.url}/predict",
        json={"model": model, "columns": columns},
        headers={"Authorization": f"Bearer {caller['token']}"},
        timeout=60,
    )
    if response.status_code != 200:
        raise FederationFailed(f"/predict: {response.status_code} {response.text[:500]}")
    answers = {answer["name"]: answer for answer in response.json()["targets"]}
    found: dict[str, NDArray[np.float64]] = {}
    if study.number is not None:
        answer = answers[study.number.name]
        found |= {name: np.array(answer[name]) for name in ("mean", "variance")}
    if study.yes_or_no is not None:
        found["chance"] = np.array(answers[study.yes_or_no.name]["mean"])
    return found


def _cells(column: NDArray[np.generic]) -> list[object]:
    return [None if cell != cell else cell for cell in column.tolist()]


def scores(each: Columns, answers: NDArray[np.float64]) -> list[float]:
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
    each: Columns, answers: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return levels, and the share of answers inside the central interval of each."""
    levels = np.array(TEN_LEVELS)
    z = np.abs(each["mean"] - answers) / np.sqrt(each["variance"])
    halves = torch.special.ndtri(torch.tensor((1 + levels) / 2)).numpy()
    return levels, np.array([(z <= half).mean() for half in halves])


def draw(
    folder: Path,
    study: Study,
    target: Target,
    rows: Mapping[str, Columns],
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
        kind = "observed" if study.truth is None else "true"
        axis.set(
            xlabel=f"{kind} {target.name} ({target.unit})",
            ylabel=f"predicted {target.name} ({target.unit}), 90 % band",
            title=name,
            ylim=(low - 4, high + 4),
        )
    paths.append(folder / "predictions.png")
    figure.savefig(paths[1], dpi=110)
    return paths


if __name__ == "__main__":
    sys.exit(main())
