"""FedBNR-KD: phase 1 by distillation on public rows; and kd+local of the same training.

8 % of all rows are public, and 2 % are left to choose the round and to calibrate. On validation
rows of seed 100, 8 rounds of 10 steps and 10 clients: α of 1, 10, 100 Skillcraft 1.13, 1.09, 1.08;
of 10, 100, 1000 SML .63, .54, .68. One α for all, where the thesis has one for each column. With
10 rounds, half of those few rows choosing and half judging (in brackets): Skillcraft 1.08 (.93)
and as much with a Matérn kernel, 1.10 (.90), Parkinsons 4.2 (5.3), CCPP 3.5 (4.0) with 10 clients;
Bike .36 (.32), CCPP 3.9 (3.6) with 100.
"""

from benchmarks.datasets import Split
from benchmarks.fedbnr import local_layers
from benchmarks.fedbnr.programs import follow_program, program_of
from benchmarks.fedbnr.protocol import Column
from benchmarks.fedbnr.scoring import Scored
from kernels.rounds.kernel import distillation
from kernels.rounds.shared.public_set import Columns, columns_of

PUBLIC = 0.8
"""The share of the validation rows that is public."""


def recipe(clients: int, public: Columns) -> distillation.Spec:
    """Return how the kernel is learnt."""
    steps = local_layers.local_steps(clients)
    return distillation.Spec(public=public, rounds=10, local_steps=steps, alphas=(100.0,))


def measure(split: Split, column: Column, *, with_local: bool) -> dict[str, Scored]:
    """Measure FedBNR-KD, and kd+local if asked for."""
    kernel = local_layers.kernel_of(split)
    public = columns_of(split.dataset.table(split.public))
    program = program_of(split, kernel, recipe(column.clients, public))
    found, trail = follow_program(program, split, split.sites, column)
    local = {"kd+local": local_layers.measure(kernel, trail)} if with_local else {}
    return {"FedBNR-KD": found, **local}
