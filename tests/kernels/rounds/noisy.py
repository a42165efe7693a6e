"""Hospitals with one smooth function between them, and noise of any law."""

import numpy as np
from numpy.typing import NDArray

from kernels.features.spec import KernelSpec
from kernels.rounds.columns import moments
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target
from tests.kernels.rounds.tables import Table

SCHEMA = Schema((Numeric("dose", "mg", -4, 4),), (Target("response", "1"), Target("twice", "1")))
KERNEL = KernelSpec(
    inputs=1, samples=8, hidden=(6,), latent=4, shifter_inputs=3, shifter_hidden=4, seed=3
)
NOISE = 0.5


def table(rows: int, *, seed: int, freedom: float | None = None, noise: float = NOISE) -> Table:
    """Return rows with noise of law t_ν, Gaussian for None; `twice` is the response, doubled."""
    random = np.random.default_rng(seed)
    dose = random.uniform(-2, 2, rows)
    errors = random.normal(size=rows) if freedom is None else random.standard_t(freedom, rows)
    response = 3 * np.sin(dose) + noise * errors
    return {"dose": dose, "response": response, "twice": 2 * response}


def dealt(whole: Table, clients: int) -> list[dict[str, NDArray[np.generic]]]:
    """Return the rows of a table as those of several hospitals."""
    return [
        {name: column[client::clients] for name, column in whole.items()}
        for client in range(clients)
    ]


def program(*stages: object, held_out: float = 0.5) -> Program:
    """Return standardisation, the linear layer and the given stages."""
    return Program(
        SCHEMA,
        KERNEL,
        (moments.Spec(), linear.Spec(), *stages),
        max_rows=10_000,
        held_out=held_out,
    )
