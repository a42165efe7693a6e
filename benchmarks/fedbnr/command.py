"""The run: which cells are missing, two processes that measure them, and what becomes of them."""

import multiprocessing
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.datasets import FILES
from benchmarks.fedbnr.anchors import read_anchors
from benchmarks.fedbnr.claims import claims
from benchmarks.fedbnr.cost import cost_of_clients, gap_between_clients
from benchmarks.fedbnr.drawings import draw_costs, draw_rows
from benchmarks.fedbnr.families import FAMILIES, measure
from benchmarks.fedbnr.kept import Kept, Result
from benchmarks.fedbnr.protocol import CLIENTS, Column
from benchmarks.fedbnr.tables import Results, markdown
from benchmarks.registry import RESULTS, Figures

PROCESSES = 2
REPORTED = "rmse", "ece", "nll", "coverage_90", "coverage_90_worst_client"
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
    found = _measured(Kept(path), list(_cells(quick=options.quick)), options)
    results = Results(
        {(row, cell.column): one for cell, result in found.items() for row, one in result.items()}
    )
    anchors = read_anchors(options.data.parent / "anchors")
    text = markdown(results, anchors)
    held = list(claims(results, anchors))
    summary = "\n".join(f"- {claim}" for claim in held)
    (RESULTS / f"{stem}.md").write_text(f"# FedBNR on five sets\n\n{summary}\n\n{text}")
    print(text)
    print(summary)
    for picture in (
        draw_rows(results, quick=options.quick),
        draw_costs(results, quick=options.quick),
    ):
        print(f"picture: {picture}")
    figures: dict[str, float] = {
        f"{metric}_{dataset}_{clients}": mean
        for dataset in FILES
        for clients in CLIENTS
        for metric in REPORTED
        if (mean := results.mean("FedBNR exact", metric, dataset, clients)) is not None
    }
    if not options.only:
        figures |= gap_between_clients(options.data) | cost_of_clients(options.data)
        figures["exact_over_pooled_cpu"] = figures["exact_over_pooled_cpu_10"]
    figures["claims_held"] = sum(claim.held >= claim.needed for claim in held)
    figures["claims"] = len(held)
    return figures


def _cells(*, quick: bool) -> Iterator[Cell]:
    """Yield what a run measures: seed by seed, so that a run cut short has seen every column."""
    families = (
        {QUICK: FAMILIES[QUICK]} if quick else {k: v for k, v in FAMILIES.items() if k != QUICK}
    )
    cells = [Cell(name, column) for name, each in families.items() for column in each.columns()]
    yield from sorted(cells, key=lambda cell: cell.column.seed)


def _measured(kept: Kept, cells: list[Cell], options: Namespace) -> Mapping[Cell, Result]:
    codes = {name: family.code() for name, family in FAMILIES.items()}
    found = {
        cell: result
        for cell in cells
        if (result := kept.result(cell.name, codes[cell.family])) is not None
    }
    missing = [cell for cell in cells if cell not in found and options.only in cell.name]
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(
            PROCESSES, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
        ) as pool,
        _bar() as bar,
    ):
        task = bar.add_task("", total=len(missing))
        futures = {pool.submit(_timed, cell, options.data): cell for cell in missing}
        try:
            for future in as_completed(futures):
                cell, result = futures[future], future.result()
                kept.keep(cell.name, codes[cell.family], result)
                found[cell] = result
                bar.update(task, advance=1, description=cell.name)
        finally:
            # Whoever stops a run does not wait for the cells that nobody would keep.
            pool.shutdown(cancel_futures=True)
    return found


def _timed(cell: Cell, data: Path) -> Result:
    start = time.process_time()
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
