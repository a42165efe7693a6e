"""The searcher finds what is there in any form and at any place, and nothing else."""

import base64
from pathlib import Path

import numpy as np
import pytest

from tests.adversary.haystack import LEAST_ELEMENTS, Search, needles_of, runs_of

RANDOM = np.random.default_rng(3)
INTEGERS = RANDOM.integers(-(2**58), 2**58, size=40)
FLOATS = RANDOM.normal(size=40)
FILLING = RANDOM.bytes(4096)


@pytest.fixture(scope="module")
def search() -> Search:
    return Search([*needles_of("integers", INTEGERS), *needles_of("floats", FLOATS)])


def hidden(told: bytes, offset: int) -> bytes:
    return FILLING[: 1024 + offset] + told + FILLING[:512]


@pytest.mark.parametrize("offset", range(8))
@pytest.mark.parametrize("start", [0, 17, 40 - LEAST_ELEMENTS])
@pytest.mark.parametrize(
    ("name", "values"), [("integers, int64", INTEGERS), ("floats, float64", FLOATS)]
)
def test_four_elements_are_found_in_every_form_at_every_place(
    search: Search, name: str, values: np.ndarray, start: int, offset: int
) -> None:
    data = values[start : start + LEAST_ELEMENTS].tobytes()
    before, after = FILLING[:offset], FILLING[:5]
    forms = {
        "bytes": data,
        "base64": base64.b64encode(before + data + after),
        "hex": (before + data).hex().encode(),
        "decimals": ", ".join(map(repr, values[start : start + 4].tolist())).encode(),
    }
    for form, told in forms.items():
        assert search.in_bytes(hidden(told, offset)) == {f"{name} in {form}"}
    url_safe = base64.urlsafe_b64encode(before + data + after)
    assert search.in_bytes(hidden(url_safe, offset)) == {f"{name} in base64"}
    unsigned = str(int(INTEGERS[0]) % 2**64).encode()
    assert search.in_bytes(hidden(unsigned, offset)) == {"integers, int64 in decimals"}


def test_three_elements_four_others_and_zeros_are_not_found(search: Search) -> None:
    assert search.in_bytes(hidden(INTEGERS[5:8].tobytes(), 3)) == set()
    assert search.in_bytes(hidden(INTEGERS[5:13:2].tobytes(), 3)) == set()
    assert search.in_bytes(bytes(1 << 16) + FILLING) == set()


def test_a_run_of_small_numbers_is_longer_and_zeros_are_none() -> None:
    assert list(runs_of(np.zeros(100))) == []
    assert {run.stop - run.start for run in runs_of(INTEGERS)} == {LEAST_ELEMENTS}
    counts = RANDOM.integers(0, 200, size=300) << 40  # eight bits each, and a scale
    lengths = {run.stop - run.start for run in runs_of(counts)}
    assert min(lengths) >= 8
    assert max(lengths) <= 16
    few = np.zeros(100)
    few[[20, 30, 31, 60]] = [1.0, 2.0, 1.0, 4.0]
    assert list(runs_of(few)) == [slice(20, 61)]


def test_what_is_public_is_not_looked_for() -> None:
    public = FLOATS[:20].tobytes() + repr(FLOATS[0].item()).encode()
    search = Search(needles_of("floats", FLOATS, but_not=public))
    assert search.in_bytes(hidden(FLOATS[:20].tobytes(), 1)) == set()
    assert search.in_bytes(hidden(repr(FLOATS[0].item()).encode(), 1)) == set()
    assert search.in_bytes(hidden(FLOATS[:21].tobytes(), 1)) == {"floats, float64 in bytes"}


def test_files_are_searched_below_a_folder(search: Search, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "spool").write_bytes(hidden(FLOATS.tobytes(), 6))
    (tmp_path / "other").write_bytes(FILLING)
    assert search.in_files(tmp_path) == {"inner/spool": {"floats, float64 in bytes"}}
