"""A11: the time to draw noise depends on the values drawn, so it is drawn before the data is read.

The exact sampler rejects and tries again, so its duration depends on what it draws. Whatever
depends on the data must come after the draw, and the size of the draw must not depend on the data.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from privacy.encoding import Encoding
from privacy.errors import NoiseError
from privacy.layout import Block, Layout
from privacy.noise import approximate, draw

LAYOUT = Layout(
    (
        Block("scatter", (4, 4), 1e4, 1.0, sensitivity=1.0, symmetric=True),
        Block("rows", (), 1e4, 1.0, sensitivity=1.0),
    )
)
ENCODING = Encoding.noisy(LAYOUT, multiplier=4.0, honest=3, max_clients=5)


class Watched(Mapping[str, NDArray[np.float64]]):
    """A contribution that records when it is first read."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        self._events.append("data")
        return np.zeros(LAYOUT.block(name).shape)

    def __iter__(self) -> Iterator[str]:
        self._events.append("data")
        return iter(["scatter", "rows"])

    def __len__(self) -> int:
        self._events.append("data")
        return 2


def test_all_noise_is_drawn_before_the_first_look_at_the_data() -> None:
    events: list[str] = []
    plain = approximate(np.random.default_rng(1))

    def source(deviation: int, count: int) -> NDArray[np.int64]:
        events.append("noise")
        return plain(deviation, count)

    noise = draw(ENCODING, source=source)
    ENCODING.encode(Watched(events), noise=noise.once())
    # One draw per block, with a size fixed by the layout; nothing is drawn after data was read.
    assert events[:2] == ["noise", "noise"]
    assert set(events[2:]) == {"data"}


def test_data_without_noise_is_not_even_looked_at() -> None:
    events: list[str] = []
    with pytest.raises(NoiseError):
        ENCODING.encode(Watched(events))
    with pytest.raises(NoiseError):
        ENCODING.encode(Watched(events), noise=np.zeros(3, dtype="<i8"))
    far = np.full(LAYOUT.length, 2**60, dtype="<i8")
    with pytest.raises(NoiseError):
        ENCODING.encode(Watched(events), noise=far)
    assert events == []


def test_what_is_drawn_is_fixed_by_the_layout_alone() -> None:
    """So everyone knows in advance how many integers are drawn."""
    asked: list[tuple[int, int]] = []

    def source(deviation: int, count: int) -> NDArray[np.int64]:
        asked.append((deviation, count))
        return np.zeros(count, dtype=np.int64)

    draw(ENCODING, source=source)
    counts = [block.length for block in LAYOUT.blocks]
    assert asked == list(zip(ENCODING.share_deviations, counts, strict=True))
