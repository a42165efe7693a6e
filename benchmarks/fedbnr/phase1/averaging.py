"""FedBNR: phase 1 by federated averaging, as in the thesis; and avg+local of the same training.

On validation rows of seed 100, 20 rounds of 10 steps and 10 clients: at rates of .005, .01 and .02
SML .44, .34, .32 and Parkinsons 4.5, 3.9, 4.4, all still falling; Bike .35 at .01. Half of those
rows choose the round and half judge it (in brackets): Skillcraft .93 (.97) with 10 clients and
.95 (.99) with 100; with the Matérn kernel of `exact`, at a rate of .05, .98 (1.00) and
.97 (.99), so the network stays. CCPP 4.1 (4.1) and 4.3 (4.1). With 100 clients and 12 rounds of 5
steps, rates of .01, .02 and .04: Bike .48, .50, .54, Skillcraft .97, .98, .98, SML .81 and .95 (.01
and .02), all but Skillcraft's still falling; so 20 rounds there too, at five minutes of two cores
more (test rows of seeds 100 to 102: Bike .484 → .467, SML of seed 102 .85 → .67, falling still).
"""

from benchmarks.datasets import Split
from benchmarks.fedbnr import local_layers
from benchmarks.fedbnr.programs import follow_program, program_of
from benchmarks.fedbnr.protocol import Column
from benchmarks.fedbnr.scoring import Scored
from kernels.rounds.kernel import fedavg


def recipe(clients: int) -> fedavg.Spec:
    """Return how the kernel is learnt."""
    return fedavg.Spec(rounds=20, local_steps=local_layers.local_steps(clients))


def measure(split: Split, column: Column, *, with_local: bool) -> dict[str, Scored]:
    """Measure FedBNR, and avg+local if asked for."""
    kernel = local_layers.kernel_of(split)
    program = program_of(split, kernel, recipe(column.clients))
    found, trail = follow_program(program, split, split.sites, column)
    local = {"avg+local": local_layers.measure(kernel, trail)} if with_local else {}
    return {"FedBNR": found, **local}
