"""The run: which cells are missing, two processes that measure them, and what becomes of them."""

import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from gpytorch.utils.warnings import NumericalWarning
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.cells import two_at_a_time
from benchmarks.datasets import FILES
from benchmarks.fedbnr import automatic
from benchmarks.fedbnr.anchors import read_anchors
from benchmarks.fedbnr.central import GP
from benchmarks.fedbnr.claims import claims
from benchmarks.fedbnr.cost import cost_of_clients, gap_between_clients
from benchmarks.fedbnr.drawings import draw_costs, draw_rows
from benchmarks.fedbnr.families import FAMILIES, measure
from benchmarks.fedbnr.protocol import CLIENTS, Column
from benchmarks.fedbnr.tables import Results, markdown, seeds_of
from benchmarks.kept import Kept, Result
from benchmarks.registry import RESULTS, Figures

REPORTED = "rmse", "ece", "nll", "coverage_90", "coverage_90_worst_client"
CLAIMED = "FedBNR auto", "FedBNR exact", "FedBNR", "FedBNR-KD", GP
QUICK = "exact_quick"


@dataclass(frozen=True)
class Cell:
    """One measurement: a family of rows in a column."""

    family: str
    column: Column

    @property
    def name(self) -> str:
        """As it is kept."""
        return f"{self.family}/{self.column.dataset}/{self.column.clients}/{self.column.seed}"


def run(options: Namespace) -> Figures:
    torch.set_num_threads(1)
    stem = "fedbnr.quick" if options.quick else "fedbnr"
    path = RESULTS / f"{stem}.cells.json"
    if options.anew:
        path.unlink(missing_ok=True)
    cells = list(_cells(quick=options.quick))
    kept = Kept(path)
    found = _measured(kept, cells, options)
    shown = {**_of_earlier_code(kept, cells, found), **found}
    results = Results(
        {(row, cell.column): one for cell, result in shown.items() for row, one in result.items()}
    )
    anchors = read_anchors(options.data.parent / "anchors")
    text = markdown(results, anchors)
    held = list(claims(results, anchors))
    summary = "\n".join(
        [_reached(results, found, shown, cells), "", *(f"- {claim}" for claim in held)]
    )
    (RESULTS / f"{stem}.md").write_text(f"# FedBNR on five sets\n\n{summary}\n\n{text}")
    print(text)
    print(summary)
    for picture in (
        draw_rows(results, quick=options.quick),
        draw_costs(results, quick=options.quick),
    ):
        print(f"picture: {picture}")
    figures: dict[str, float] = {
        f"{of}{metric}_{dataset}_{clients}": mean
        for of, row in (("", "FedBNR exact"), ("auto_", automatic.ROW))
        for dataset in FILES
        for clients in CLIENTS
        for metric in REPORTED
        if (mean := results.mean(row, metric, dataset, clients)) is not None
    }
    if not options.only:
        figures |= gap_between_clients(options.data) | cost_of_clients(options.data)
        figures["exact_over_pooled_cpu"] = figures["exact_over_pooled_cpu_10"]
    figures["cells"], figures["cells_of"] = len(found), len(cells)
    figures["cpu_s"] = _cpu_seconds(found)
    figures["claims_held"] = sum(claim.verdict == "yes" for claim in held)
    figures["claims"] = len(held)
    return figures


def _of_earlier_code(
    kept: Kept, cells: list[Cell], found: Mapping[Cell, Result]
) -> dict[Cell, Result]:
    """Return what is not measured with this code, as an earlier one has measured it.

    Our own automatic row is not among them: it is what changes.
    """
    rest = (cell for cell in cells if cell not in found and cell.family != "automatic")
    return {
        cell: result for cell in rest if (result := kept.of_earlier_code(cell.name)) is not None
    }


def _reached(
    results: Results,
    found: Mapping[Cell, Result],
    shown: Mapping[Cell, Result],
    cells: list[Cell],
) -> str:
    """Say how much of the run there is, and of how many seeds the claims' means are."""
    seeds = ", ".join(f"{row} {seeds_of(results, 'rmse', row)}" for row in CLAIMED)
    whole = "" if len(found) == len(cells) else ": **not all of the run yet**"
    families = dict.fromkeys(cell.family for cell in shown if cell not in found)
    if families:
        earlier = f" {len(shown) - len(found)} more are of earlier sources ({', '.join(families)})."
    else:
        earlier = ""
    seconds = _cpu_seconds(found)
    cpu = f"{seconds:,.0f} CPU seconds, {seconds / 120:.0f} minutes of two cores"
    return f"{len(found)} of {len(cells)} cells{whole}, {cpu}; seeds: {seeds}.{earlier}"


def _cpu_seconds(found: Mapping[Cell, Result]) -> float:
    # All rows of a cell are of one training.
    return sum(float(next(iter(result.values()))["cpu_s"]) for result in found.values())


def _cells(*, quick: bool) -> Iterator[Cell]:
    """Yield what a run measures: seed by seed, so that a run cut short has seen every column."""
    families = (
        {QUICK: FAMILIES[QUICK]} if quick else {k: v for k, v in FAMILIES.items() if k != QUICK}
    )
    cells = [Cell(name, column) for name, each in families.items() for column in each.columns()]
    yield from sorted(cells, key=lambda cell: cell.column.seed)


def _measured(kept: Kept, cells: list[Cell], options: Namespace) -> Mapping[Cell, Result]:
    codes = {name: family.code() for name, family in FAMILIES.items()}
    work = {cell.name: (cell, options.data) for cell in cells}
    found = {
        cell: result
        for cell in cells
        if (result := kept.result(cell.name, codes[cell.family])) is not None
    }
    missing = [cell for cell in cells if cell not in found and options.only in cell.name]
    with _bar() as bar:
        task = bar.add_task("", total=len(missing))
        measuring = two_at_a_time(_timed, {cell.name: work[cell.name] for cell in missing})
        for number, (name, result) in enumerate(measuring, start=1):
            cell, _ = work[name]
            kept.keep(name, codes[cell.family], result)
            found[cell] = result
            bar.update(task, advance=1, description=name)
            if not bar.console.is_terminal:  # where there is no bar, as in a log
                print(f"  {number} of {len(missing)}: {name}", file=sys.stderr, flush=True)
    return found


def _timed(cell: Cell, data: Path) -> Result:
    start = time.process_time()
    with warnings.catch_warnings():
        # That gpytorch adds jitter to a matrix is no news, and would tear the bar of progress.
        warnings.filterwarnings("ignore", "A not p.d.", NumericalWarning)
        result = measure(cell.family, cell.column, data)
    seconds = round(time.process_time() - start, 1)
    return {row: {**found, "cpu_s": seconds} for row, found in result.items()}


def _bar() -> Progress:
    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
    )
