"""Which rows there are, and what measures them: rows that share a training are one family.

A family names the sources that decide its numbers: its own file here, the protocol, and of
`kernels` the mathematics. Plumbing (how a model is stored, a table is read or a program is
checked) is left out: it changes often, and tests hold that it changes no number.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.datasets import FILES
from benchmarks.fedbnr import alone, automatic, central, experts, networks, personal
from benchmarks.fedbnr.anchors import PROXIMAL, RHO
from benchmarks.fedbnr.phase1 import averaging, distillation, exact
from benchmarks.fedbnr.protocol import CLIENTS, Column, Tables
from benchmarks.kept import Result, fingerprint

ROOT = Path(__file__).parent.parent.parent
QUICK_SEEDS, BASELINE_SEEDS, SEEDS = 2, 3, 10
QUICK_STEPS = 100

_PROTOCOL = (
    "benchmarks/datasets.py",
    "benchmarks/fedbnr/protocol.py",
    "benchmarks/fedbnr/scoring.py",
    "kernels/scores/evaluation.py",
    "kernels/scores/metrics.py",
    "kernels/tables/standardiser.py",
    "kernels/scores/student_t.py",
)
_KERNEL = (
    "kernels/features/architectures.py",
    "kernels/features/seeded_random.py",
    "kernels/layer/posterior.py",
    "kernels/features/urk.py",
)
_PROGRAM = (
    "benchmarks/fedbnr/programs.py",
    "kernels/scores/recalibration.py",
    "kernels/layer/refit.py",
    "kernels/rounds/shared/held_out.py",
    "kernels/rounds/shared/judged.py",
    *_KERNEL,
)
_LOCAL = (
    "benchmarks/fedbnr/local_layers.py",
    "kernels/layer/local_evidence.py",
    "kernels/rounds/shared/local_training.py",
)
_BY_HAND = "benchmarks/fedbnr/anchors.py"
_EXACT = (
    "kernels/layer/evidence.py",
    "kernels/rounds/kernel/exact.py",
    "kernels/rounds/shared/evidence_step.py",
    "kernels/rounds/shared/grid.py",
)
_RECIPES = (_BY_HAND, "benchmarks/fedbnr/phase1/exact.py", *_EXACT)
_AUTOMATIC = (
    "benchmarks/fedbnr/automatic.py",
    "kernels/features/inducing.py",
    "kernels/features/linear_part.py",
    "kernels/layer/leave_one_out.py",
    "kernels/model/second.py",
    "kernels/rounds/automatic.py",
    "kernels/rounds/judging/recalibration.py",
    "kernels/rounds/kernel/blend.py",
    "kernels/rounds/kernel/densities.py",
    "kernels/rounds/kernel/search.py",
    "kernels/rounds/layer/completion.py",
    "kernels/tables/curves.py",
)
_AVERAGING = "benchmarks/fedbnr/phase1/averaging.py", "kernels/rounds/kernel/fedavg.py"
_DISTILLATION = "benchmarks/fedbnr/phase1/distillation.py", "kernels/rounds/kernel/distillation.py"


@dataclass(frozen=True)
class Family:
    """Rows that one training gives.

    measure: from the column and the folder of data to a result for each of `rows`.
    """

    rows: tuple[str, ...]
    measure: Callable[[Column, Path], Result]
    sources: tuple[str, ...]
    seeds: int = BASELINE_SEEDS
    clients: tuple[int, ...] = CLIENTS

    def columns(self) -> list[Column]:
        """Return what is to be measured, seed by seed."""
        return [
            Column(dataset, clients, seed)
            for seed in range(self.seeds)
            for dataset in FILES
            for clients in self.clients
        ]

    def code(self) -> str:
        """Return the fingerprint of what decides this family's numbers."""
        return fingerprint(ROOT / source for source in (*_PROTOCOL, *self.sources))


def _central_gp(column: Column, data: Path) -> Result:
    return central.measure(Tables.of(column.split(data)), seed=column.seed)


def _central_urk(column: Column, data: Path) -> Result:
    return exact.measure_central(column.split(data), column)


def _exact(column: Column, data: Path) -> Result:
    return exact.measure(column.split(data), column)


def _automatic(column: Column, data: Path) -> Result:
    return automatic.measure(column.split(data))


def _exact_quickly(column: Column, data: Path) -> Result:
    return exact.measure(column.split(data), column, most_steps=QUICK_STEPS)


def _averaging(column: Column, data: Path) -> Result:
    local = column.seed < BASELINE_SEEDS
    return averaging.measure(column.split(data), column, with_local=local)


def _distillation(column: Column, data: Path) -> Result:
    local = column.seed < BASELINE_SEEDS
    split = column.split(data, public=distillation.PUBLIC)
    return distillation.measure(split, column, with_local=local)


def _alone(column: Column, data: Path) -> Result:
    return alone.measure(Tables.of(column.split(data)))


def _networks(column: Column, data: Path) -> Result:
    tables = Tables.of(column.split(data))
    return {
        name: networks.measure(tables, proximal=mu, seed=column.seed)
        for name, mu in (
            ("FedAvg", 0.0),
            ("FedProx", PROXIMAL[column.dataset, column.clients]),
        )
    }


def _personal(column: Column, data: Path) -> Result:
    return {"pFedGP": personal.measure(Tables.of(column.split(data)), seed=column.seed)}


def _experts(column: Column, data: Path) -> Result:
    rho = RHO[column.dataset, column.clients]
    return {"FedLoc": experts.measure(Tables.of(column.split(data)), rho=rho)}


_GAUSSIAN = "benchmarks/fedbnr/gaussian.py"
_NETWORKS = "benchmarks/fedbnr/networks.py"

FAMILIES: Mapping[str, Family] = {
    "exact": Family(("FedBNR exact",), _exact, (*_PROGRAM, *_RECIPES), seeds=SEEDS),
    "exact_quick": Family(
        ("FedBNR exact",), _exact_quickly, (*_PROGRAM, *_RECIPES), seeds=QUICK_SEEDS
    ),
    "automatic": Family(
        (automatic.ROW,), _automatic, (*_PROGRAM, *_EXACT, *_AUTOMATIC), seeds=SEEDS
    ),
    "averaging": Family(
        ("FedBNR", "avg+local"),
        _averaging,
        (*_PROGRAM, *_LOCAL, *_AVERAGING),
        seeds=SEEDS,
    ),
    "distillation": Family(
        ("FedBNR-KD", "kd+local"),
        _distillation,
        (*_PROGRAM, *_LOCAL, *_DISTILLATION),
        seeds=SEEDS,
    ),
    "central_gp": Family(
        (central.GP, central.RECALIBRATED_GP),
        _central_gp,
        ("benchmarks/fedbnr/central.py", _GAUSSIAN, "kernels/scores/recalibration.py"),
        clients=(10,),
    ),
    "central_urk": Family(("Central URK",), _central_urk, (*_PROGRAM, *_RECIPES), clients=(10,)),
    "alone": Family(
        ("local+local", "local+global"),
        _alone,
        ("benchmarks/fedbnr/alone.py", *_KERNEL, *_LOCAL),
    ),
    "networks": Family(("FedAvg", "FedProx"), _networks, (_NETWORKS, _BY_HAND)),
    "personal": Family(
        ("pFedGP",), _personal, ("benchmarks/fedbnr/personal.py", _GAUSSIAN, _NETWORKS)
    ),
    "experts": Family(("FedLoc",), _experts, ("benchmarks/fedbnr/experts.py", _GAUSSIAN, _BY_HAND)),
}

ROWS = (
    central.GP,
    central.RECALIBRATED_GP,
    "Central URK",
    "local+local",
    "local+global",
    "avg+local",
    "kd+local",
    "FedAvg",
    "FedProx",
    "pFedGP",
    "FedLoc",
    "FedBNR",
    "FedBNR-KD",
    "FedBNR exact",
    automatic.ROW,
)
"""In the order of the tables."""


def measure(family: str, column: Column, data: Path) -> Result:
    """Measure one cell; what a worker process is asked for."""
    return FAMILIES[family].measure(column, data)
