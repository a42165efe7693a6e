"""A release describes what is drawn, is plain data, and refuses invalid values."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.accounting.events import Release
from privacy.encoding import Encoding
from privacy.errors import AccountingError, NoiseError
from privacy.layout import Block, Layout

LAYOUT = Layout(
    (
        Block("scatter", (5, 5), 1e5, 1.0, sensitivity=1.0, symmetric=True),
        Block("rows", (), 1e5, 1.0, sensitivity=1.0, weight=0.1),
    )
)
ENCODING = Encoding.noisy(LAYOUT, multiplier=4.0, honest=5, max_clients=10)
FIELDS = {
    "statistic": "linear",
    "part": "training",
    "multiplier": 4.0,
    "dimension": 16,
    "share_deviation": 2**30,
    "honest": 5,
}


def test_a_release_is_described_by_what_will_be_drawn() -> None:
    release = Release.of(ENCODING, honest=5, statistic="linear", part="training")
    assert release.multiplier == ENCODING.multiplier(honest=5)
    assert 4.0 <= release.multiplier < 4.001
    assert release.dimension == 16
    assert release.share_deviation == min(ENCODING.share_deviations)


def test_fewer_honest_members_than_the_noise_was_made_for_are_not_glossed_over() -> None:
    """Shares are for five honest members, but two are not honest: z follows from three draws."""
    release = Release.of(ENCODING, honest=3, statistic="linear", part="training")
    assert release.multiplier == pytest.approx(4.0 * math.sqrt(3 / 5), rel=1e-3)


def test_a_sum_without_noise_is_no_release() -> None:
    with pytest.raises(NoiseError):
        Release.of(
            Encoding.finest(LAYOUT, max_clients=10), honest=5, statistic="linear", part="training"
        )


@given(
    multiplier=st.floats(1e-6, 1e6),
    sums=st.integers(1, 10**6),
    rate=st.floats(1e-6, 1.0),
    dealing=st.binary(max_size=64),
)
def test_a_release_survives_json(multiplier: float, sums: int, rate: float, dealing: bytes) -> None:
    release = Release.planned(
        multiplier=multiplier,
        honest=5,
        statistic="linear",
        part="training",
        sums=sums,
        sampling_rate=rate,
        dealing=dealing,
    )
    assert Release.from_json(json.loads(json.dumps(release.to_json()))) == release


@pytest.mark.parametrize(
    "wrong",
    [
        {"statistic": ""},
        {"statistic": 3},
        {"part": "x" * 101},
        {"multiplier": 0.0},
        {"multiplier": -1.0},
        {"multiplier": math.nan},
        {"multiplier": math.inf},
        {"multiplier": "4"},
        {"multiplier": True},
        {"sampling_rate": 0.0},
        {"sampling_rate": 1.1},
        {"dimension": 0},
        {"dimension": 2.0},
        {"share_deviation": 0},
        {"honest": 0},
        {"sums": 0},
        {"sums": True},
        {"dealing": "ab"},
        {"dealing": bytes(65)},
    ],
)
def test_a_release_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(AccountingError):
        Release(**(FIELDS | wrong))


@pytest.mark.parametrize(
    "junk",
    [
        None,
        [],
        "release",
        {},
        FIELDS,
        Release(**FIELDS).to_json() | {"more": 1},
        Release(**FIELDS).to_json() | {"dealing": "xyz"},
        Release(**FIELDS).to_json() | {"dealing": None},
        Release(**FIELDS).to_json() | {"sums": 1.5},
    ],
)
def test_junk_is_no_release(junk: object) -> None:
    with pytest.raises(AccountingError):
        Release.from_json(junk)
