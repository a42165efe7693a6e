"""What a site makes of a broadcast: the agreed program's state, or a named refusal."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels import storage
from kernels.errors import KernelsError, StateError
from kernels.rounds.broadcast import received
from kernels.rounds.columns import moments
from kernels.rounds.kernel import exact
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.tables.schema import Schema
from privacy.encoding import Encoding
from tests.kernels.rounds import tables
from tests.kernels.rounds.sums import add_plainly

PROGRAM = tables.program(exact.Spec(steps=3, penalties=(3.0,)))
STAGE = 1


def states() -> tuple[exact.State, exact.State]:
    """Both kinds of state of an exact step: before its first and before its second sum."""
    sites = [tables.site(seed=seed) for seed in range(3)]
    first = exact.initial(PROGRAM.stages[STAGE], tables.fitted(sites))
    encoding = Encoding.finest(exact.layout(first), max_clients=3)
    total = add_plainly(encoding, [exact.contribute(first, site) for site in sites])
    second = exact.update(first, total)
    return first, second


FIRST, SECOND = states()


def sent(state: Any) -> Any:
    return received(storage.encode(state, broadcast=True), PROGRAM, STAGE)


def test_an_honest_broadcast_is_received() -> None:
    assert torch.equal(sent(FIRST).model.weights, FIRST.model.weights)
    assert sent(SECOND).pooled.rows == SECOND.pooled.rows


def other_kernel(state: exact.State) -> exact.State:
    kernel = replace(state.model.kernel, seed=state.model.kernel.seed + 1)
    return replace(state, model=replace(state.model, kernel=kernel))


def pooled(**changes: Any) -> exact.State:
    assert SECOND.pooled is not None
    statistics = replace(SECOND.pooled.statistics, **changes)
    return replace(SECOND, pooled=replace(SECOND.pooled, statistics=statistics))


@pytest.mark.parametrize(
    "make",
    [
        lambda: linear.initial(linear.Spec(), FIRST.model),
        lambda: linear.Spec(),
        lambda: other_kernel(FIRST),
        lambda: replace(FIRST, spec=exact.Spec(steps=9, penalties=(3.0,))),
        lambda: replace(FIRST, model=replace(FIRST.model, max_rows=999)),
        lambda: replace(FIRST, model=5),
        lambda: replace(FIRST, run=9),
        lambda: pooled(scatter=torch.zeros(3, 3, dtype=torch.float64)),
        lambda: pooled(scatter=torch.zeros(16, 16)),
        lambda: pooled(scatter=torch.ones(16, 16, dtype=torch.float64).tril()),
        lambda: pooled(cross=torch.full((16, 2), torch.nan, dtype=torch.float64)),
        lambda: pooled(cross=torch.zeros(16, 3, dtype=torch.float64)),
        lambda: pooled(count=0),
        lambda: pooled(count="many"),
        lambda: replace(SECOND, pooled=SECOND.pooled.statistics),
    ],
)
def test_a_crafted_broadcast_is_refused_by_name(make: Any) -> None:
    with pytest.raises(KernelsError):
        sent(make())


@pytest.mark.parametrize("half", [100.0, 1.0, 0.1])
def test_the_unit_that_a_column_is_summed_in_is_not_the_coordinators_to_choose(half: float) -> None:
    """Else a site's refusal says whether its own sum is above a number that the coordinator has."""
    age, lactate, ward = PROGRAM.schema.features
    stay, cost = PROGRAM.schema.targets

    def state(**changed: Any) -> moments.State:
        own = {
            "age": age,
            "lactate": replace(lactate, lower=-64.0, upper=64.0),
            "stay": replace(stay, lower=-1024.0, upper=1024.0),
            **changed,
        }
        bounded = Schema((own["age"], own["lactate"], ward), (own["stay"], cost))
        return moments.State(PROGRAM.start(), moments.Spec(), bounded)

    received(storage.encode(state(), broadcast=True), PROGRAM, 0)
    for changed in (
        {"age": replace(age, lower=55 - half, upper=55 + half)},
        {"stay": replace(stay, lower=-half, upper=1024.0)},
        {"stay": replace(stay, lower=-half * 3, upper=half * 3)},
        {"stay": replace(stay, lower=-(2.0**33), upper=2.0**33)},
        {"stay": stay},
        {"lactate": replace(lactate, name="lactat", lower=-64.0, upper=64.0)},
    ):
        with pytest.raises(StateError, match="powers of two"):
            state(**changed)


def test_the_stage_is_the_programs_not_the_coordinators_choice() -> None:
    data = storage.encode(FIRST, broadcast=True)
    with pytest.raises(StateError, match="not a state of moments"):
        received(data, PROGRAM, 0)
    other = Program(tables.SCHEMA, tables.KERNEL, (moments.Spec(), exact.Spec(steps=4)), 1000)
    with pytest.raises(StateError, match="other parameters"):
        received(data, other, STAGE)
