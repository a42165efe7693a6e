"""The run: cells two at a time, then means, the table, the picture and the figures."""

import time
from argparse import Namespace
from pathlib import Path

import torch

from benchmarks.cells import Cells
from benchmarks.dp import audit
from benchmarks.dp.drawings import draw
from benchmarks.dp.figures import figures_of, means_over_seeds
from benchmarks.dp.plan import measure, wanted
from benchmarks.dp.tables import write_table
from benchmarks.registry import RESULTS, Figures

ROOT = Path(__file__).parents[2]


def run(options: Namespace) -> Figures:
    torch.set_num_threads(1)
    start = time.monotonic()
    stem = "dp.quick" if options.quick else "dp"
    sources = [*ROOT.glob("kernels/**/*.py"), *ROOT.glob("privacy/**/*.py")]
    sources += ROOT.glob("benchmarks/dp/*.py")
    cells = Cells(RESULTS / f"{stem}.cells.json", sources)
    plan = wanted(quick=options.quick)
    whole = not any(cell.key in cells for cell in plan)
    done = cells.measure_all(measure, {cell.key: (cell, options.data) for cell in plan})
    scores = {cell: done[cell.key] for cell in plan}
    means = means_over_seeds(scores)
    write_table(means, RESULTS / f"{stem}.md")
    print(f"picture: {draw(means, quick=options.quick)}")
    figures = {**figures_of(scores), **audit.figures(quick=options.quick)}
    figures["cpu_minutes"] = sum(score["cpu_s"] for score in scores.values()) / 60
    if whole:
        figures["minutes"] = (time.monotonic() - start) / 60
    cells.finish()
    return figures
