"""The run: cells that are missing, two processes that measure them, and what becomes of them."""

from argparse import Namespace
from pathlib import Path

import torch

from benchmarks.cells import Cells
from benchmarks.predictive import printed_tables
from benchmarks.predictive.cost import costs
from benchmarks.predictive.data import FILES, SPLITS
from benchmarks.predictive.drawing import draw
from benchmarks.predictive.honest import measure
from benchmarks.predictive.summary import Summary
from benchmarks.registry import RESULTS, Figures

HERE = Path(__file__).parent
KERNELS = HERE.parent.parent / "kernels"
SEEDS = range(10, 15)


def run(options: Namespace) -> Figures:
    torch.set_num_threads(1)
    stem = "predictive" + ".as_printed" * options.as_printed + ".quick" * options.quick
    own = ("data", "printed") if options.as_printed else ("data", "honest", "fedbnr")
    sources = [*KERNELS.glob("**/*.py"), *(HERE / f"{name}.py" for name in own)]
    cells = Cells(RESULTS / f"{stem}.cells.json", sources)
    work = printed_tables.run if options.as_printed else _honest
    figures, text = work(cells, options)
    (RESULTS / f"{stem}.md").write_text(text)
    print(text)
    cells.finish()
    return figures


def _honest(cells: Cells, options: Namespace) -> tuple[Figures, str]:
    seeds = SEEDS[:1] if options.quick else SEEDS
    keys = [(name, split, seed) for seed in seeds for name in FILES for split in SPLITS]
    wanted = {
        f"{name}/{split}/{seed}": (name, options.data, split, seed) for name, split, seed in keys
    }
    done = cells.measure_all(measure, wanted)
    summary = Summary({key: done["/".join(map(str, key))] for key in keys})
    figures, table = costs()
    print(f"picture: {draw(summary, quick=options.quick)}")
    parts = [
        "# Predictive-space committees on five sets",
        "\n".join(summary.bars()),
        summary.tables(),
        "## What a prediction costs, over one network",
        "Students of 2, 5 and 20 clients; open ensembles of 1 to 20 clients with 6 samples each.",
        table,
    ]
    return {**summary.figures(), **figures}, "\n\n".join(parts) + "\n"
