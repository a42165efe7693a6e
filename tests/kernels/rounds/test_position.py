"""A position is what everyone computes from the program and the totals, and its digest says so."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels import storage
from kernels.rounds import position as positions
from kernels.rounds.columns import moments
from kernels.rounds.kernel import exact
from kernels.rounds.layer import linear
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from privacy.encoding import Encoding
from privacy.layout import SecureTotal
from tests.kernels.rounds import tables
from tests.kernels.rounds.sums import add_plainly

STAGES = (moments.Spec(), exact.Spec(steps=2, penalties=(3.0,)), linear.Spec())
PROGRAM = Program(tables.SCHEMA, tables.KERNEL, STAGES)


def total_at(position: Position) -> SecureTotal:
    """Sum over a few sites."""
    algorithm, state = position.algorithm, position.state
    encoding = Encoding.finest(algorithm.layout(state), max_clients=3)
    sites = [tables.site(seed=seed) for seed in range(3)]
    return add_plainly(encoding, [algorithm.contribute(state, site) for site in sites])


@pytest.fixture(scope="module")
def walked() -> tuple[list[Position], list[SecureTotal]]:
    """Return every position of a run, and the totals between them."""
    walk, totals = [positions.start(PROGRAM, None)], list[SecureTotal]()
    while not walk[-1].finished:
        totals.append(total_at(walk[-1]))
        walk.append(positions.after(walk[-1], totals[-1])[0])
    return walk, totals


Walked = tuple[list[Position], list[SecureTotal]]


def test_sums_are_counted_over_the_whole_run(walked: Walked) -> None:
    walk, totals = walked
    assert [position.sum_index for position in walk] == list(range(len(totals) + 1))
    assert sorted({position.stage for position in walk}) == [0, 1, 2]


def test_totals_alone_give_every_digest_again_and_no_two_are_equal(walked: Walked) -> None:
    walk, totals = walked
    again = positions.start(PROGRAM, None)
    assert again.digest == walk[0].digest
    for total, position in zip(totals, walk[1:], strict=True):
        again, _ = positions.after(again, total)
        assert again.digest == position.digest
    assert len({position.digest for position in walk}) == len(walk)


def test_the_digest_covers_stage_sum_index_and_what_is_never_broadcast(walked: Walked) -> None:
    position = next(each for each in walked[0] if each.stage == 1 and each.state.step == 1)
    moment = position.state.first_moment.clone()
    moment[0] += 2.0**-60
    others: list[Any] = [
        replace(position, stage=0),
        replace(position, sum_index=position.sum_index + 1),
        replace(position, state=replace(position.state, first_moment=moment)),
        replace(position, state=replace(position.state, history=())),
    ]
    assert position.digest not in {other.digest for other in others}
    stored = restore(storage.encode(position.state))
    assert replace(position, state=stored).digest == position.digest


def test_one_state_has_one_sequence_of_bytes(walked: Walked) -> None:
    state = walked[0][-1].state
    cross = state.model.statistics.cross
    wide = torch.zeros(len(cross), 2 * cross.shape[1], dtype=torch.float64)
    wide[:, ::2] = cross
    for same in (cross.clone(), wide[:, ::2], cross.mT.contiguous().mT):
        statistics = replace(state.model.statistics, cross=same)
        other = replace(state, model=replace(state.model, statistics=statistics))
        assert storage.encode(other) == storage.encode(state)
    zero = replace(exact.Progress(0, 0), evidence=0.0)
    assert storage.encode(replace(zero, evidence=-0.0)) == storage.encode(zero)
