"""The run: cells two at a time, then means, the tables and the figures."""

import sys
from argparse import Namespace
from collections.abc import Mapping

import torch

from benchmarks.cells import two_at_a_time
from benchmarks.kept import Kept, Result
from benchmarks.outcomes.figures import TARGETS, figures_of
from benchmarks.outcomes.plan import MINE, Cell, measure, wanted
from benchmarks.outcomes.sources import code_of_others, code_of_ours
from benchmarks.outcomes.tables import write_tables
from benchmarks.registry import RESULTS, Figures


def run(options: Namespace) -> Figures:
    torch.set_num_threads(1)
    stem = "outcomes.quick" if options.quick else "outcomes"
    path = RESULTS / f"{stem}.cells.json"
    if options.anew:
        path.unlink(missing_ok=True)
    scores = _measured(Kept(path), wanted(quick=options.quick), options)
    figures = figures_of(scores)
    write_tables(scores, figures, RESULTS / f"{stem}.md")
    for target in TARGETS:
        print(target.line(figures.get(target.figure)))
    return figures


def _measured(kept: Kept, plan: list[Cell], options: Namespace) -> Mapping[Cell, Result]:
    """Return what is kept of the plan, and measure what is missing if `--only` allows it."""
    ours, others = code_of_ours(), code_of_others()
    codes = {cell: ours if cell.method == MINE else others for cell in plan}
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
