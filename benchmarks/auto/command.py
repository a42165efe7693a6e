"""The run: cells two at a time, then means, the tables, the picture and the figures."""

import sys
from argparse import Namespace
from collections.abc import Mapping

import torch

from benchmarks.auto.curve import draw_curve
from benchmarks.auto.figures import figures_of, targets
from benchmarks.auto.plan import QUICK, WHOLE, Cell, curve_cells, measure, wanted
from benchmarks.auto.sources import code_of
from benchmarks.auto.tables import write_tables
from benchmarks.cells import two_at_a_time
from benchmarks.kept import Kept, Result
from benchmarks.registry import RESULTS, Figures


def run(options: Namespace) -> Figures:
    torch.set_num_threads(1)
    asked = QUICK if options.quick else WHOLE
    stem = "auto.quick" if options.quick else "auto"
    path = RESULTS / f"{stem}.cells.json"
    if options.anew:
        path.unlink(missing_ok=True)
    done = _measured(Kept(path), wanted(asked, options.data), options)
    points = curve_cells(asked, options.data)
    figures = figures_of(done, points, asked)
    write_tables(done, points, asked, figures, RESULTS / f"{stem}.md")
    draw_curve(done, points, quick=options.quick)
    for target in targets(figures):
        print(target.line(figures.get(target.figure)))
    return figures


def _measured(kept: Kept, plan: list[Cell], options: Namespace) -> Mapping[Cell, Result]:
    """Return what is kept of the plan, and measure what is missing if `--only` allows it."""
    codes = {cell: code_of(cell) for cell in plan}
    found = {
        cell: result for cell in plan if (result := kept.result(cell.key, codes[cell])) is not None
    }
    missing = {cell.key: cell for cell in plan if cell not in found and options.only in cell.key}
    measuring = two_at_a_time(measure, {key: (cell, options.data) for key, cell in missing.items()})
    for number, (key, result) in enumerate(measuring, start=1):
        cell = missing[key]
        kept.keep(key, codes[cell], result)
        found[cell] = result
        print(f"  {number} of {len(missing)}: {key}", file=sys.stderr, flush=True)
    return {cell: found[cell] for cell in plan if cell in found}
