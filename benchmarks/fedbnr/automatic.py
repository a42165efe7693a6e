"""FedBNR auto: the program that a session gets which states a schema and nothing else.

No set's name is here, nor in what is imported: the kernel, the rate, the penalty and the number of
steps are those of `kernels.rounds.automatic` for every schema. It also trains on its held-out rows
in the end, as sessions do. What is scored is what `/predict` serves: the calibrated law.
"""

from benchmarks.datasets import Split
from benchmarks.fedbnr.programs import coverage
from benchmarks.fedbnr.protocol import Tables
from benchmarks.fedbnr.scoring import Belief, Scored, scored
from client_sdk.simulation import simulate
from kernels.model.prediction import predict
from kernels.rounds.automatic import automatic_program

ROW = "FedBNR auto"


def measure(split: Split) -> dict[str, Scored]:
    """Measure it; its sums are in place of the rounds of the others."""
    program = automatic_program(split.dataset.schema, min_sites=1, max_rows=20_000)
    done = simulate(program, split.sites, secure=False)
    tables = Tables.of(split)
    served = predict(done.model, split.dataset.table(split.test))
    if served.recalibration is None or done.model.standardiser is None:
        raise RuntimeError("the automatic program standardises and recalibrates")
    law, target = served.recalibration[0].law, done.model.standardiser.targets[0]
    mean = (served.mean - target.mean) / target.scale
    variance = served.variance / target.scale**2 / law.variance
    found = scored(Belief(mean, variance, law), tables.test.y, scale=tables.scale)
    return {
        ROW: {
            **found,
            **coverage(done.model, split),
            "rmse_min": found["rmse"],
            "rounds": float(done.sums),
        }
    }
