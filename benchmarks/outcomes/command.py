"""The run: cells two at a time, then means, the tables and the figures."""

import time
from argparse import Namespace
from pathlib import Path

import torch

from benchmarks.cells import Cells
from benchmarks.outcomes.figures import TARGETS, figures_of
from benchmarks.outcomes.plan import measure, wanted
from benchmarks.outcomes.tables import write_tables
from benchmarks.registry import RESULTS, Figures

ROOT = Path(__file__).parents[2]


def run(options: Namespace) -> Figures:
    torch.set_num_threads(1)
    start = time.monotonic()
    stem = "outcomes.quick" if options.quick else "outcomes"
    sources = [*ROOT.glob("kernels/**/*.py"), *ROOT.glob("privacy/**/*.py")]
    sources += ROOT.glob("benchmarks/outcomes/**/*.py")
    cells = Cells(RESULTS / f"{stem}.cells.json", sources)
    plan = [cell for cell in wanted(quick=options.quick) if options.only in cell.key]
    whole = not any(cell.key in cells for cell in plan)
    done = cells.measure_all(measure, {cell.key: (cell, options.data) for cell in plan})
    scores = {cell: done[cell.key] for cell in plan}
    figures = figures_of(scores)
    if whole:
        figures["minutes"] = (time.monotonic() - start) / 60
    write_tables(scores, figures, RESULTS / f"{stem}.md")
    for target in TARGETS:
        print(target.line(figures.get(target.figure)))
    cells.finish()
    return figures
