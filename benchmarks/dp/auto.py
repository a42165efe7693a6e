"""The cells of the route `auto` alone: `python -m benchmarks.dp.auto [--only PART] [--report]`.

They are measured one at a time in one process and kept in `benchmarks/results`; --only takes those
with PART in their name, and --report measures none. Then `auto` is written beside what `python -m
benchmarks dp` measured of the other routes, whose rows and figures stay as they are.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from benchmarks.dp.data import DICTIONARY
from benchmarks.dp.drawings import draw
from benchmarks.dp.figures import OPACUS_EPSILON, Means, means_over_seeds, over_central
from benchmarks.dp.plan import AUTO, CLIENTS, MAIN, Cell, measure, wanted
from benchmarks.dp.tables import read_table, write_table
from benchmarks.kept import Kept, fingerprint
from benchmarks.registry import RESULTS

ROOT = Path(__file__).parents[2]
CELLS = RESULTS / "dp.auto.cells.json"


def code() -> str:
    """Return the fingerprint of the sources that decide a cell's numbers."""
    sources = [*ROOT.glob("kernels/**/*.py"), *ROOT.glob("privacy/**/*.py")]
    sources = [own for own in sources if not own.name.startswith("forecast")]
    sources += [
        ROOT / "benchmarks" / "dp" / f"{name}.py"
        for name in ("automatic", "data", "plan", "scores")
    ]
    return fingerprint(sources)


def figures_of(done: Means, others: Means) -> dict[str, float | int]:
    """Return the figures of `auto`, beside the means of other methods."""
    means = means_over_seeds(done)
    few, _ = CLIENTS
    figures: dict[str, float | int] = {"auto_cells": len(done)}
    for cell, score in means.items():
        if cell.clients == few:
            for what in ("rmse", "ece", "nll"):
                figures[f"{what}_auto_{cell.dataset}_eps{cell.epsilon:g}"] = score[what]
    eces = [score["ece"] for cell, score in means.items() if cell.clients == few]
    if eces:
        figures["largest_ece_auto"] = max(eces)
    if ratio := over_central(done, AUTO, few):
        figures["federated_over_central_auto"] = ratio
    better = []
    for name in DICTIONARY:
        own = {cell.epsilon: score["rmse"] for cell, score in means.items() if _is(cell, name)}
        fixed = others.get(Cell(MAIN, name, 1.0, few))
        if 1.0 in own and fixed is not None:
            figures[f"auto_over_elbo_{name}_eps1"] = own[1.0] / fixed["rmse"]
        epsilons = sorted(each for each in own if each <= OPACUS_EPSILON)
        theirs = [_mean(others, f"opacus_{kind}", name, epsilons) for kind in ("network", "linear")]
        if epsilons:
            ratio = float(np.mean([own[each] for each in epsilons])) / min(theirs)
            figures[f"auto_over_opacus_{name}"] = ratio
            better.append(ratio < 1)
    figures["auto_sets_better_than_opacus"] = sum(better)
    return figures


def _is(cell: Cell, dataset: str) -> bool:
    return cell.dataset == dataset and cell.clients == CLIENTS[0]


def _mean(means: Means, method: str, dataset: str, epsilons: list[float]) -> float:
    found = [means.get(Cell(method, dataset, each, 1)) for each in epsilons]
    scores = [each["rmse"] for each in found if each is not None]
    return float(np.mean(scores)) if len(scores) == len(epsilons) and scores else float("nan")


def report(done: Means) -> Mapping[str, float | int]:
    """Write table, picture and figures with `auto` beside what stands there of others."""
    table, results = RESULTS / "dp.md", RESULTS / "dp.json"
    others = {cell: score for cell, score in read_table(table).items() if cell.method != AUTO}
    means = {**others, **means_over_seeds(done)}
    write_table(means, table)
    draw(means, quick=False)
    document = json.loads(results.read_text())
    kept = {name: each for name, each in document["figures"].items() if "auto" not in name}
    document["figures"] = {**kept, **figures_of(done, others)}
    results.write_text(json.dumps(document) + "\n")
    found: Mapping[str, float | int] = document["figures"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dp.auto", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", default="")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept, now = Kept(CELLS), code()
    done: dict[Cell, Mapping[str, float]] = {}
    for cell in wanted(quick=False):
        if cell.method != AUTO:
            continue
        found = kept.result(cell.key, now)
        if found is None and not options.report and options.only in cell.key:
            found = measure(cell, options.data)
            kept.keep(cell.key, now, found)
            print(f"  {cell.key}: {found['rmse']:.4f}", file=sys.stderr, flush=True)
        if found is not None:
            done[cell] = found
    figures = report(done)
    print(json.dumps({name: each for name, each in figures.items() if "auto" in name}, indent=2))


if __name__ == "__main__":
    main()
