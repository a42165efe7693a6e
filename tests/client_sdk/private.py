"""A session of three hospitals with differential privacy, for tests of what leaves them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernels.features.spec import Architecture, KernelSpec
from kernels.model.noise_plan import NoisePlan
from kernels.rounds.columns import moments
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Target
from tests.client_sdk.conftest import NAMES
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.hospitals import Hospital, permissive
from tests.dealing import home_keys
from tests.kernels.rounds.tables import Table, tables

DELTA = 1e-5
SCHEMA = Schema(
    (Numeric("age", "a", 0, 120), Categorical("ward", ("medical", "surgical"))),
    (Target("stay", "d", 0, 30),),
)
PROGRAM = Program.from_json(
    Program(
        SCHEMA,
        KernelSpec(architecture=Architecture.RBF, inputs=3, samples=4, seed=3),
        (moments.Spec(), linear.Spec()),
        max_rows=1000,
        held_out=0.25,
        privacy=NoisePlan(multipliers=(8.0, 6.0)),
    ).to_json()
)
"""Two sums, which together cost ε = 0.76."""


def private_session(
    homes: Path,
    program: Program = PROGRAM,
    *,
    epsilon: float | None = 1.0,
    data: Sequence[Table] | None = None,
) -> tuple[SmallCoordinator, list[Hospital]]:
    """Return a coordinator with an open run, and hospitals with the given privacy budget."""
    coordinator = SmallCoordinator(program, NAMES)
    assert coordinator.terms is not None
    coordinator.terms = replace(coordinator.terms, differential_privacy=True)
    keys = home_keys(homes, NAMES)
    coordinator.members.update(keys)
    coordinator.start()
    spending = {} if epsilon is None else {"epsilon": epsilon, "delta": DELTA}
    policy = permissive(program, without_differential_privacy=False, **spending)
    hospitals = [
        Hospital(coordinator.link(i), homes / name, table, policy, roster=keys)
        for i, (name, table) in enumerate(zip(NAMES, data or tables(3), strict=True))
    ]
    return coordinator, hospitals
