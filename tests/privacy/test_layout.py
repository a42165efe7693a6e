"""Layouts declare what may leave a client; a total is only made by the secure sum."""

import copy
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.encoding import Encoding
from privacy.errors import LayoutError, TotalError
from privacy.layout import MAX_LENGTH, Block, Layout, SecureTotal

POSITIVE = st.floats(1e-100, 1e100)
NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_./:-]{0,20}", fullmatch=True)


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    symmetric = draw(st.booleans())
    side = draw(st.integers(0, 5))
    shape = (side, side) if symmetric else tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    sensitivity = draw(st.none() | POSITIVE)
    return Block(draw(NAMES), shape, draw(POSITIVE), draw(POSITIVE), sensitivity, symmetric)


LAYOUTS = st.lists(blocks(), min_size=1, max_size=5, unique_by=lambda block: block.name).map(
    lambda made: Layout(tuple(made))
)


def scatter(side: int = 3) -> Block:
    return Block("scatter", (side, side), bound=8.0, resolution=2**-20, symmetric=True)


@given(LAYOUTS)
def test_a_layout_survives_its_canonical_form(layout: Layout) -> None:
    again = Layout.from_bytes(layout.to_bytes())
    assert again == layout
    assert again.digest() == layout.digest()


@given(LAYOUTS, st.data())
def test_damaged_bytes_are_another_layout_or_a_named_error(layout: Layout, data: Any) -> None:
    good = layout.to_bytes()
    place = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[place] ^= data.draw(st.integers(1, 255))
    try:
        other = Layout.from_bytes(bytes(bad))
    except LayoutError:
        return
    assert other != layout
    assert other.to_bytes() == bytes(bad)


@given(LAYOUTS, st.data())
def test_cut_or_extended_bytes_are_refused(layout: Layout, data: Any) -> None:
    good = layout.to_bytes()
    for bad in (good[: data.draw(st.integers(0, len(good) - 1))], good + b"\0"):
        with pytest.raises(LayoutError):
            Layout.from_bytes(bad)


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused_by_name(data: bytes) -> None:
    for prefix in (b"", b"veilgp layout 2\0"):
        with pytest.raises(LayoutError):
            Layout.from_bytes(prefix + data[:1] + b"\xff" + data)


def test_every_field_is_in_the_digest() -> None:
    block = Block("b", (2, 2), 1.0, 0.5, 0.25)
    changes: list[dict[str, Any]] = [
        {"name": "c"},
        {"shape": (4,)},
        {"bound": 2.0},
        {"resolution": 0.25},
        {"sensitivity": 0.5},
        {"sensitivity": None},
        {"symmetric": True},
    ]
    digests = {Layout((replace(block, **change),)).digest() for change in [{}, *changes]}
    assert len(digests) == len(changes) + 1


def test_a_symmetric_block_travels_as_one_triangle() -> None:
    layout = Layout((scatter(4), Block("vector", (2, 3), 1.0, 0.5), Block("rows", (), 9.0, 1.0)))
    assert [block.length for block in layout.blocks] == [10, 6, 1]
    assert layout.length == 17
    assert [layout.offset(block.name) for block in layout.blocks] == [0, 10, 16]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "with space"},
        {"name": "größe"},
        {"name": "x" * 101},
        {"name": 3},
        {"shape": [2]},
        {"shape": (-1,)},
        {"shape": (2.0,)},
        {"shape": (True,)},
        {"shape": (1,) * 9},
        {"shape": (MAX_LENGTH + 1,)},
        {"bound": 0.0},
        {"bound": -1.0},
        {"bound": float("nan")},
        {"bound": float("inf")},
        {"bound": 1e101},
        {"bound": True},
        {"bound": "1"},
        {"resolution": 0.0},
        {"resolution": 1e-101},
        {"sensitivity": 0.0},
        {"sensitivity": float("nan")},
        {"symmetric": 1},
        {"symmetric": True, "shape": (2, 3)},
        {"symmetric": True, "shape": (4,)},
    ],
    ids=str,
)
def test_an_impossible_block_is_refused(wrong: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"name": "b", "shape": (2,), "bound": 1.0, "resolution": 0.5}
    with pytest.raises(LayoutError) as refused:
        Block(**(fields | wrong))
    assert refused.value.code == "layout.invalid"


def test_an_impossible_layout_is_refused() -> None:
    half = Block("half", (MAX_LENGTH // 2 + 1,), 1.0, 0.5)
    cases: list[Any] = [
        (),
        [scatter()],
        (scatter(), "rows"),
        (scatter(), scatter()),
        (half, replace(half, name="other")),
    ]
    for wrong in cases:
        with pytest.raises(LayoutError):
            Layout(wrong)
    with pytest.raises(LayoutError, match="no block 'rows'; it has scatter"):
        Layout((scatter(),)).block("rows")
    with pytest.raises(FrozenInstanceError):
        scatter().bound = 9.0


def total() -> SecureTotal:
    encoding = Encoding.finest(Layout((scatter(),)), max_clients=3)
    vectors = [encoding.encode({"scatter": np.full((3, 3), value)}) for value in (1.0, 2.0, -0.5)]
    return encoding.decode(np.add.reduce(vectors), contributors=3)


def test_a_total_has_named_read_only_blocks() -> None:
    made = total()
    assert made.contributors == 3
    assert made.layout == Layout((scatter(),))
    assert np.allclose(made["scatter"], 2.5, rtol=0, atol=made.rounding("scatter"))
    assert repr(made) == "<SecureTotal of 3 members: scatter>"
    with pytest.raises(ValueError, match="read-only"):
        made["scatter"][0, 0] = 1.0
    with pytest.raises(LayoutError, match="no block 'rows'"):
        made["rows"]
    with pytest.raises(LayoutError, match="no block 'rows'"):
        made.rounding("rows")


def test_nobody_makes_a_total_by_hand() -> None:
    made = total()
    attempts: list[Any] = [
        lambda: SecureTotal(),
        lambda: SecureTotal(layout=made.layout, contributors=1),
        lambda: SecureTotal.__new__(SecureTotal),
        lambda: type("Forged", (SecureTotal,), {}),
        lambda: copy.copy(made),
        lambda: copy.deepcopy(made),
        lambda: pickle.dumps(made),
        lambda: setattr(made, "_contributors", 1),
        lambda: setattr(made, "note", 1),
        lambda: delattr(made, "_contributors"),
    ]
    for attempt in attempts:
        with pytest.raises(TotalError):
            attempt()
    assert made.contributors == 3
