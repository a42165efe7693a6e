"""The run: cells two at a time, then means, the tables and the figures."""

from argparse import Namespace

import torch

from benchmarks.kept import Kept, measured
from benchmarks.outcomes.figures import TARGETS, figures_of
from benchmarks.outcomes.plan import measure, wanted
from benchmarks.outcomes.sources import code_of
from benchmarks.outcomes.tables import write_tables
from benchmarks.registry import RESULTS, Figures


def run(options: Namespace) -> Figures:
    torch.set_num_threads(1)
    stem = "outcomes.quick" if options.quick else "outcomes"
    path = RESULTS / f"{stem}.cells.json"
    if options.anew:
        path.unlink(missing_ok=True)
    scores = measured(
        Kept(path), wanted(quick=options.quick), options, code_of=code_of, measure=measure
    )
    figures = figures_of(scores)
    write_tables(scores, figures, RESULTS / f"{stem}.md")
    for target in TARGETS:
        print(target.line(figures.get(target.figure)))
    return figures
