"""A22, by the program: parameters that turn an honest algorithm into questions about one patient.

A coordinator that may choose the program needs no crafted states: features without a bound or with
steep frequencies isolate rows, many local steps or a high rate memorise them, thousands of hostile
public rows are as many probes of a model of one site. The site's own range of recipes refuses
these. A run from a model of the coordinator's own making is refused too, and a run over fewer rows
than the program states stops everywhere alike.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk import simulate
from client_sdk.errors import ParentForbidden
from client_sdk.gate.recipes import Recipes
from kernels.errors import FewerRowsThanStated
from kernels.features.spec import Architecture, Ending, KernelSpec
from kernels.features.urk import URK
from kernels.rounds.ensemble import predictive
from kernels.rounds.kernel import exact, fedavg
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, program_of
from kernels.rounds.shared.public_set import columns_of
from tests.client_sdk.conftest import Make, homes, make, program
from tests.client_sdk.hospitals import drive, permissive
from tests.client_sdk.private import PROGRAM as PRIVATE
from tests.dealing import DEALING
from tests.kernels.rounds.tables import KERNEL, table, tables
from tests.kernels.rounds.tables import program as program_with

__all__ = ["homes", "make", "program"]


def of_kernel(**changes: Any) -> Program:
    return replace(program_with(), kernel=KernelSpec(inputs=KERNEL.inputs, **changes))


def hostile_rows() -> Program:
    """Return a program with a public row for every decimal of one column around a known patient."""
    own = {name: np.repeat(column[:1], 50) for name, column in table(2).items()}
    own["age"] = own["age"] + np.linspace(-1, 1, 50)
    features = {name: column for name, column in own.items() if name not in ("stay", "cost")}
    return program_with(predictive.Spec(public=columns_of(features)))


COPIES: dict[str, Any] = {"architecture": Architecture.REPLICATED}
EXTREME = {
    "steep features": of_kernel(architecture=Architecture.RBF, lengthscale=1e-3),
    "steep networks": of_kernel(frequency_scale=1e3),
    "unbounded features": of_kernel(**COPIES, ending=Ending.LINEAR),
    "a high rate": program_with(exact.Spec(learning_rate=0.9)),
    "many local steps": program_with(fedavg.Spec(local_steps=500, learning_rate=1e-4)),
    "hostile public rows": hostile_rows(),
    "one patient held out": program_with(held_out=0.004),
    "a limit that only larger sites exceed": replace(program_with(), max_rows=30),
}


@pytest.mark.parametrize("name", EXTREME)
def test_an_extreme_program_is_refused_by_the_standard_recipes(name: str) -> None:
    assert [*Recipes().problems(EXTREME[name])]
    assert not [*Recipes().problems(program_with())]


def test_steep_features_would_put_every_patient_apart() -> None:
    """Two patients that differ by a hundredth of a deviation have nothing in common."""
    x = torch.zeros(2, 3, dtype=torch.float64)
    x[1, 0] = 0.01
    for scale, alike in ((1e-3, False), (Recipes().lengthscale[0], True)):
        kernel = KernelSpec(
            inputs=3, architecture=Architecture.RBF, samples=500, lengthscale=scale, seed=1
        )
        one, other = URK(kernel).features(x)
        assert bool(one @ other > 0.9) is alike


def test_a_run_over_fewer_rows_than_stated_stops_at_the_first_total_that_shows_it() -> None:
    own = program_with(exact.Spec(steps=1, penalties=(3.0,)))
    simulate(replace(own, least_rows=60), tables(3), DEALING, secure=False)
    with pytest.raises(FewerRowsThanStated):
        simulate(replace(own, least_rows=1000), tables(3), DEALING, secure=False)


def test_with_noise_the_number_of_rows_decides_nothing() -> None:
    simulate(replace(PRIVATE, least_rows=10**9), tables(3), DEALING, secure=False)


def test_a_run_from_a_model_of_the_coordinators_own_making_is_not_entered(
    make: Make, program: Program
) -> None:
    coordinator, hospitals = make(replace(permissive(program), parents=()))
    drive(hospitals, coordinator)
    assert hospitals[0].finished is not None
    coordinator.start("evaluate")
    coordinator.opened = program_of(Kind.EVALUATE, program)
    coordinator.parent = "crafted"
    drive(hospitals[:1], coordinator, first_error=True)
    assert isinstance(hospitals[0].error, ParentForbidden)
    assert not coordinator.sums.advertised
