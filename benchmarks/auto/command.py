"""The run: cells two at a time, then means, the tables, the picture and the figures."""

from argparse import Namespace

import torch

from benchmarks.auto.curve import draw_curve
from benchmarks.auto.figures import figures_of, targets
from benchmarks.auto.plan import QUICK, WHOLE, curve_cells, measure, wanted
from benchmarks.auto.sources import code_of
from benchmarks.auto.tables import write_tables
from benchmarks.kept import Kept, measured
from benchmarks.registry import RESULTS, Figures


def run(options: Namespace) -> Figures:
    torch.set_num_threads(1)
    asked = QUICK if options.quick else WHOLE
    stem = "auto.quick" if options.quick else "auto"
    path = RESULTS / f"{stem}.cells.json"
    if options.anew:
        path.unlink(missing_ok=True)
    done = measured(
        Kept(path), wanted(asked, options.data), options, code_of=code_of, measure=measure
    )
    points = curve_cells(asked, options.data)
    figures = figures_of(done, points, asked)
    write_tables(done, points, asked, figures, RESULTS / f"{stem}.md")
    draw_curve(done, points, quick=options.quick)
    for target in targets(figures):
        print(target.line(figures.get(target.figure)))
    return figures
