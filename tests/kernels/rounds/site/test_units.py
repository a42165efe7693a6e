"""Units of privacy: which of a patient's rows count is that patient's own matter."""

from collections import Counter
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.rounds.columns import moments
from kernels.rounds.site.site import Part, Site
from tests.dealing import DEALING, dealing_of
from tests.kernels.rounds import private

MODEL = private.fitted(private.program(moments.Spec(from_bounds=True)), [])


def hashes(numbers: list[int]) -> list[bytes]:
    return [np.random.default_rng(n).bytes(32) for n in numbers]


rows_of_patients = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 8)), min_size=1, max_size=40
)


@given(rows_of_patients, st.integers(1, 4), st.integers(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_choice_is_of_a_patients_own_rows_in_any_order(
    rows: list[tuple[int, int]], most: int, number: int, random: Any
) -> None:
    def kept(some: list[tuple[int, int]]) -> Counter[tuple[int, int]]:
        keys, contents = hashes([p for p, _ in some]), hashes([100 + 10 * p + c for p, c in some])
        stays = dealing_of(number).kept(keys, contents, most=most)
        return Counter(row for row, own in zip(some, stays, strict=True) if own)

    whole = kept(rows)
    counts, present = Counter(), Counter(p for p, _ in rows)
    for (patient, _), times in whole.items():
        counts[patient] += times
    assert counts == {p: min(most, n) for p, n in present.items()}
    shuffled = random.sample(rows, len(rows))
    assert kept(shuffled) == whole
    one = rows[0][0]
    others = kept([row for row in rows if row[0] != one])
    assert others == Counter({row: n for row, n in whole.items() if row[0] != one})


def test_another_secret_chooses_other_rows() -> None:
    keys, contents = hashes([1] * 20), hashes(list(range(20)))
    chosen = {tuple(dealing_of(s).kept(keys, contents, most=3).tolist()) for s in range(20)}
    assert len(chosen) > 10


def test_a_site_gives_no_more_rows_of_a_patient_than_the_program_allows() -> None:
    whole = private.table(200, seed=5, patients=9)
    site = private.site(whole)
    for part in (Part.TRAINING, Part.CALIBRATION):
        for records in site.record_chunks(part, MODEL):
            assert records.patients is not None
            assert max(Counter(records.patients).values()) <= 3
    plain = MODEL.__class__(MODEL.schema, MODEL.kernel, MODEL.max_rows)
    every = sum(len(r) for part in site.parts for r in site.record_chunks(part, plain))
    assert every == 200 > sum(site.count(part, MODEL) for part in site.parts)


def test_a_streamed_table_keeps_the_rows_that_one_in_memory_keeps() -> None:
    whole = private.table(300, seed=6, patients=20)
    pieces = [
        {name: column[i : i + 37] for name, column in whole.items()} for i in range(0, 300, 37)
    ]
    how: dict[str, Any] = {"held_out": 0.5, "dealing": DEALING}
    streamed = Site.of_stream(private.PATIENTS, pieces, rows_in_memory=0, **how)
    in_memory = Site.of_stream(private.PATIENTS, pieces, **how)
    for part in (Part.TRAINING, Part.STOPPING, Part.CALIBRATION):
        assert streamed.count(part, MODEL) == in_memory.count(part, MODEL) > 0
        one, other = (
            torch.cat([r.numeric for r in s.record_chunks(part, MODEL)])
            for s in (streamed, in_memory)
        )
        assert torch.equal(one, other)
        units = [
            torch.cat([y for _, y, _ in s.units(part, MODEL, rows=7)]).sum(0)
            for s in (streamed, in_memory)
        ]
        torch.testing.assert_close(*units)


@given(st.integers(1, 30), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_units_come_whole_and_every_one_once(rows: int, seed: int) -> None:
    site = private.site(private.table(60, seed=seed, patients=15), held_out=0.0)
    (records,) = site.record_chunks(Part.TRAINING, MODEL)
    seen = []
    for x, y, unit in site.units(Part.TRAINING, MODEL, rows=rows):
        assert len(x) == len(y) == len(unit) <= max(rows, 3)
        assert sorted(set(unit.tolist())) == list(range(int(unit.max()) + 1))
        seen += Counter(unit.tolist()).values()
    assert sorted(seen) == sorted(Counter(records.patients).values())


def test_a_sample_is_new_every_time_and_of_whole_units() -> None:
    whole = private.table(400, seed=1, patients=80, outliers=0.0)
    site = private.site(whole, held_out=0.0)
    everyone = sum(len(x) for x, _, _ in site.units(Part.TRAINING, MODEL, rows=50))
    sizes = [
        sum(len(x) for x, _, _ in site.units(Part.TRAINING, MODEL, rows=50, sampling_rate=0.5))
        for _ in range(40)
    ]
    assert len(set(sizes)) > 5
    assert 0.4 < np.mean(sizes) / everyone < 0.6
    for _, _, unit in site.units(Part.TRAINING, MODEL, rows=400, sampling_rate=0.5):
        present = Counter(unit.tolist()).values()
    (records,) = site.record_chunks(Part.TRAINING, MODEL)
    # Never a part of a patient: as many with three rows as there are at most.
    assert Counter(present)[3] <= Counter(Counter(records.patients).values())[3]


def test_randomness_that_is_given_decides_the_sample() -> None:
    records = private.site(private.table(30, seed=1), held_out=0.0).parts
    low, high = (
        Site(records, dealing=DEALING, randomness=lambda n, b=octet: b * n)
        for octet in (b"\x00", b"\xff")
    )
    sizes = [
        sum(len(x) for x, _, _ in site.units(Part.TRAINING, MODEL, rows=50, sampling_rate=0.5))
        for site in (low, high)
    ]
    assert sizes == [low.count(Part.TRAINING, MODEL), 0]
