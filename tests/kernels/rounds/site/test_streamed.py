"""A site whose rows are read again for every sum gives what a site in memory gives."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.simulation import simulate
from kernels.errors import ChangedTable, TableRefused, TooManyRows
from kernels.model.model import Model
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import exact, fedavg
from kernels.rounds.layer import linear, linear_two_sums, update
from kernels.rounds.program import Program
from kernels.rounds.site import site, streamed
from kernels.rounds.site.site import Part, Site
from kernels.tables.problems import RowByRow
from kernels.tables.row_hashes import keys_and_hashes
from tests.dealing import DEALING, dealing_of
from tests.kernels.rounds import tables

ROWS = 120


class Pieces:
    """A table in pieces of given sizes, that counts how often it is read."""

    def __init__(self, table: Mapping[str, Any], *sizes: int) -> None:
        self.table, self.sizes, self.readings = dict(table), sizes, 0

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        self.readings += 1
        rows = len(next(iter(self.table.values())))
        ends = np.cumsum([0, *self.sizes]).clip(0, rows).tolist()
        for first, last in zip(ends, [*ends[1:], rows], strict=True):
            yield {name: cells[first:last] for name, cells in self.table.items()}


def streamed_site(table: Mapping[str, Any], *sizes: int, rows_in_memory: int = 0) -> Site:
    return Site.of_stream(
        tables.SCHEMA,
        Pieces(table, *sizes),
        held_out=0.4,
        dealing=DEALING,
        rows_in_memory=rows_in_memory,
    )


def in_memory(table: Mapping[str, Any]) -> Site:
    return Site.of_table(tables.SCHEMA, table, held_out=0.4, dealing=DEALING)


STAGES = (
    moments.Spec(),
    exact.Spec(steps=3, penalties=(3.0,)),
    linear_two_sums.Spec(),
    linear.Spec(),
    recalibration.Spec(min_rows=10),
    evaluation.Spec(),
)
PROGRAM = Program(tables.SCHEMA, tables.KERNEL, STAGES, max_rows=1000, held_out=0.4)


@pytest.fixture(scope="module")
def held() -> Model:
    parts = [in_memory(tables.table(ROWS, seed=seed)) for seed in range(3)]
    return simulate(PROGRAM, parts, DEALING, secure=False).model


@pytest.mark.parametrize("chunk_rows", [7, 8192])
def test_every_sum_of_a_program_is_that_of_a_site_in_memory(
    held: Model, chunk_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "CHUNK_ROWS", chunk_rows)
    monkeypatch.setattr(exact, "CHUNK_ROWS", chunk_rows)
    parts = [streamed_site(tables.table(ROWS, seed=seed), 50, 1, 30) for seed in range(3)]
    assert all(not each.records for each in parts)
    read = simulate(PROGRAM, parts, DEALING, secure=False).model
    np.testing.assert_allclose(read.weights, held.weights, atol=1e-6)
    for name in ("scatter", "cross", "target_squares", "count"):
        one, other = (getattr(model.statistics, name) for model in (read, held))
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    for one, other in zip(read.recalibration, held.recalibration, strict=True):
        np.testing.assert_allclose(one.counts, other.counts)
    np.testing.assert_allclose(
        read.scores.recalibrated.squared_errors,
        held.scores.recalibrated.squared_errors,
        rtol=1e-6,
    )


def test_an_update_reads_streamed_rows_too(held: Model) -> None:
    table, more = tables.table(ROWS), tables.table(40, seed=5)
    state = update.initial(update.Spec(), held)
    plain, read = (
        Site(
            {Part.TRAINING: make(table).parts[Part.TRAINING], Part.ADDED: make(more).parts[part]},
        )
        for make, part in ((in_memory, Part.TRAINING), (streamed_site, Part.TRAINING))
    )
    one, other = update.contribute(state, plain), update.contribute(state, read)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-9, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 60), max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_dealing_and_digest_depend_on_neither_order_nor_division(
    sizes: list[int], order: Any
) -> None:
    table = tables.table(60)
    turned = list(range(60))
    order.shuffle(turned)
    shuffled = {name: cells[turned] for name, cells in table.items()}
    one, other = in_memory(table), streamed_site(shuffled, *sizes)
    assert one.digest == other.digest
    assert Site(one.records).digest == one.digest
    for part in one.parts:
        ages = np.concatenate(
            [np.zeros(0), *(each.numeric[:, 0] for each in other.parts[part].in_pieces(9))]
        )
        assert sorted(ages) == sorted(one.records[part].numeric[:, 0].tolist())


def test_a_digest_tells_tables_apart() -> None:
    table = tables.table(30)
    schema = replace(tables.SCHEMA, patient="id")
    ids = np.array([f"p{i}" for i in range(30)])
    twice = {name: np.concatenate([cells, cells[:1]]) for name, cells in table.items()}
    changed = dict(table) | {"age": table["age"] + np.eye(30)[3]}
    digests = [
        in_memory(table).digest,
        in_memory(twice).digest,
        in_memory({name: cells[:-1] for name, cells in table.items()}).digest,
        in_memory(changed).digest,
        Site.of_table(schema, dict(table) | {"id": ids}, held_out=0.4, dealing=DEALING).digest,
        Site.of_table(
            schema, dict(table) | {"id": ids[::-1]}, held_out=0.4, dealing=DEALING
        ).digest,
    ]
    assert len(set(digests)) == len(digests)
    assert {len(digest) for digest in digests} == {32}
    # Columns that the schema does not read, and the seed, are no part of it.
    wider = dict(table) | {"note": ids}
    other = Site.of_table(tables.SCHEMA, wider, held_out=0.1, dealing=dealing_of(8))
    assert other.digest == digests[0]


def test_a_digest_is_the_hash_of_all_256_bits_of_the_sum() -> None:
    own = in_memory(tables.table(30))
    hashes = [each for part in own.records.values() for each in keys_and_hashes(part)[1]]
    total = sum(int.from_bytes(each, "little") for each in hashes) % 2**256
    content = b"veilgp/table/1" + (30).to_bytes(8, "big") + total.to_bytes(32, "big")
    assert own.digest == hashlib.sha256(content).digest()


def test_seeds_deal_independently() -> None:
    schema, table = tables.SCHEMA, tables.table(4000)
    pair = [
        streamed.Dealt.of(
            schema, [table], held_out=0.5, dealing=dealing_of(seed), rows_in_memory=0
        ).parts
        > 0
        for seed in (1, 2)
    ]
    assert [round(float(own.mean()), 1) for own in pair] == [0.5, 0.5]
    assert 0.2 < float((pair[0] & pair[1]).mean()) < 0.3


def test_few_rows_are_kept_in_memory_and_read_once() -> None:
    pieces = Pieces(tables.table(ROWS), 50, 20)
    kept = Site.of_stream(tables.SCHEMA, pieces, held_out=0.4, dealing=DEALING, rows_in_memory=ROWS)
    assert pieces.readings == 1
    assert repr(kept) == repr(in_memory(pieces.table))
    assert kept.records.keys() == kept.parts.keys()
    seen: list[int] = []
    Site.of_stream(tables.SCHEMA, pieces, held_out=0.4, dealing=DEALING, watch=seen.append)
    assert seen == [50, 70, ROWS]


def test_all_problems_of_all_pieces_are_those_of_the_whole() -> None:
    bad = {name: cells.astype(object) for name, cells in tables.table(90).items()}
    bad["ward"][[3, 70, 71, 85]] = "corridor"
    bad["age"][[40]] = 400.0
    bad["age"][[41, 80]] = None
    bad["stay"][[89]] = "long"
    messages = []
    for sizes in ((), (10, 40), (70,), (41, 1, 0, 40)):
        with pytest.raises(TableRefused) as raised:
            streamed_site(bad, *sizes)
        messages.append(str(raised.value))
    assert len(set(messages)) == 1
    assert "4 of 90 cells match none of the levels" in messages[0]
    assert "(rows 3, 70, 71 …, counted from 0)" in messages[0]
    assert "2 of 90 cells are missing (rows 41, 80, counted from 0)" in messages[0]


def test_no_rows_at_all_are_refused_however_they_come() -> None:
    nothing = {name: cells[:0] for name, cells in tables.table(3).items()}
    for pieces in ([], [nothing], [nothing, nothing]):
        with pytest.raises(TableRefused, match="no rows"):
            Site.of_stream(tables.SCHEMA, pieces, held_out=0.4, dealing=DEALING)


@pytest.mark.parametrize("change", ["a cell", "fewer", "more"])
def test_a_table_that_changes_under_a_session_is_noticed(held: Model, change: str) -> None:
    pieces = Pieces(tables.table(ROWS), 50)
    own = Site.of_stream(tables.SCHEMA, pieces, held_out=0.4, dealing=DEALING, rows_in_memory=0)
    state = linear.initial(linear.Spec(), held)
    linear.contribute(state, own)
    if change == "a cell":
        pieces.table["age"] = pieces.table["age"] + np.eye(ROWS)[17]
    else:
        kept = slice(0, 50) if change == "fewer" else np.r_[0:ROWS, 3]
        pieces.table = {name: cells[kept] for name, cells in pieces.table.items()}
    with pytest.raises(ChangedTable, match="join again"):
        linear.contribute(state, own)


def test_local_training_refuses_more_rows_than_are_held(
    held: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = streamed_site(tables.table(ROWS), 50)
    state = fedavg.initial(fedavg.Spec(validate=False, rounds=1, local_steps=1), held)
    fewer = fedavg.contribute(state, own)
    same = fedavg.contribute(state, in_memory(tables.table(ROWS)))
    np.testing.assert_allclose(fewer["change"], same["change"], atol=1e-9)
    monkeypatch.setattr(site, "ROWS_IN_MEMORY", 40)
    with pytest.raises(TooManyRows, match="and the limit is 40"):
        fedavg.contribute(state, streamed_site(tables.table(ROWS), 50))


@pytest.mark.parametrize("rows_in_memory", [0, 1000])
def test_row_by_row_the_same_rows_are_left_out_at_every_reading(rows_in_memory: int) -> None:
    table = {name: list(cells) for name, cells in tables.table(ROWS).items()}
    good = {name: [c for i, c in enumerate(cells) if i % 10] for name, cells in table.items()}
    for row in range(0, ROWS, 10):
        table["ward"][row] = "hospice"
    found = RowByRow()
    read = Site.of_stream(
        tables.SCHEMA,
        Pieces(table, 50, 1, 30),
        held_out=0.4,
        dealing=DEALING,
        rows_in_memory=rows_in_memory,
        row_by_row=found,
    )
    expected = in_memory(good)
    assert (found.left_out, read.digest) == (ROWS // 10, expected.digest)
    for part in (Part.TRAINING, Part.STOPPING, Part.CALIBRATION):
        rows = [key for piece in read.parts[part].in_pieces(7) for key in keys_and_hashes(piece)[1]]
        assert rows == keys_and_hashes(expected.records[part])[1]
    assert found.left_out == ROWS // 10, "what is read again is not counted again"
