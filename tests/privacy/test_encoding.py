"""Sums of encoded vectors are the sums of the numbers, up to the declared rounding."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privacy.encoding import Encoding
from privacy.errors import (
    BlockMismatch,
    EncodingError,
    LayoutError,
    NotFinite,
    NotSymmetric,
    OutOfBound,
    PrivacyError,
    ResolutionTooFine,
    TotalError,
    TotalOutOfBound,
    WrongShape,
)
from privacy.layout import Block, Layout
from privacy.scales import finest_bits, largest_integer

LAYOUT = Layout(
    (
        Block("scatter", (4, 4), bound=50.0, resolution=2**-30, symmetric=True),
        Block("cross", (2, 3), bound=1e6, resolution=2**-20),
        Block("rows", (), bound=1e5, resolution=1.0),
    )
)
ENCODING = Encoding.finest(LAYOUT, max_clients=200)


def signed(vector: NDArray[np.uint64]) -> list[int]:
    return [int(element) for element in vector.view("<i8")]


def contribution(generator: np.random.Generator, *, spread: float = 1.0) -> dict[str, Any]:
    """Return values of all magnitudes within their bounds, some of them exactly at the bound."""
    values = {}
    for block in LAYOUT.blocks:
        size = generator.uniform(-1, 1, block.shape) * 2.0 ** generator.uniform(
            -40 * spread, 0, block.shape
        )
        extreme = generator.uniform(size=block.shape) < 0.2
        size = np.where(extreme, np.sign(size), size) * block.bound
        values[block.name] = np.triu(size) + np.triu(size, 1).T if block.symmetric else size
    return values


def exact_sum(arrays: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    stacked = np.stack(arrays)
    flat = stacked.reshape(len(arrays), -1)
    return np.array([math.fsum(column) for column in flat.T]).reshape(stacked.shape[1:])


@settings(max_examples=60)
@given(clients=st.integers(3, 200), seed=st.integers(0, 2**32))
def test_the_decoded_sum_is_fsum_to_the_declared_rounding(clients: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = [contribution(generator) for _ in range(clients)]
    vectors = [ENCODING.encode(value) for value in values]
    summed = np.add.reduce(vectors)
    # Integers: the sum modulo 2^64 is the sum.
    assert signed(summed) == [sum(column) for column in zip(*map(signed, vectors), strict=True)]
    total = ENCODING.decode(summed, contributors=clients)
    for block, bits in zip(LAYOUT.blocks, ENCODING.fractional_bits, strict=True):
        expected = exact_sum([value[block.name] for value in values])
        assert np.max(np.abs(total[block.name] - expected)) <= total.rounding(block.name)
        fixed_point = clients * 2.0 ** -(bits + 1)
        largest = np.max(np.abs(total[block.name]))
        assert fixed_point <= total.rounding(block.name) <= fixed_point + 2.0**-50 * largest


@given(seed=st.integers(0, 2**32))
def test_one_client_is_rounded_by_at_most_half_a_step(seed: int) -> None:
    """In exact arithmetic, √2 included: |integer − x·2^f| ≤ 1/2, off the diagonal x·√2·2^f."""
    values = contribution(np.random.default_rng(seed), spread=1.4)
    integers = signed(ENCODING.encode(values))
    start = 0
    for block, bits in zip(LAYOUT.blocks, ENCODING.fractional_bits, strict=True):
        array = values[block.name]
        packed = np.asarray(array).reshape(-1)
        squares = [1] * block.length
        if block.symmetric:
            upper = np.triu_indices(block.shape[0], 1)
            packed = np.concatenate([np.diagonal(array), array[upper]])
            squares = [1] * block.shape[0] + [2] * len(upper[0])
        for integer, x, square in zip(
            integers[start : start + block.length], packed, squares, strict=True
        ):
            scaled = abs(Fraction(float(x))) * Fraction(2) ** bits
            half = Fraction(1, 2) + Fraction(1, 2**40) * (square - 1)
            # |i| − ½ ≤ √s·x ≤ |i| + ½, by squares so that √2 stays exact.
            low, high = max(abs(integer) - half, 0), abs(integer) + half
            assert low**2 <= square * scaled**2 <= high**2
            assert integer == 0 or (integer > 0) == (x > 0)
        start += block.length


@given(
    bound=st.floats(1e-100, 1e100),
    clients=st.integers(1, 200),
    symmetric=st.booleans(),
    below=st.integers(0, 3),
)
def test_overflow_is_impossible_by_construction(
    bound: float, clients: int, symmetric: bool, below: int
) -> None:
    block = Block("b", (2, 2), bound, 1e100, symmetric=symmetric)
    bits = finest_bits(block, clients)
    assert clients * largest_integer(block, bits) < 2**60
    assert clients * largest_integer(block, bits + 1) >= 2**60
    layout = Layout((block,))
    with pytest.raises(EncodingError, match="overflow"):
        Encoding(layout, clients, (bits + 1,))
    encoding = Encoding(layout, clients, (bits - below,))
    for extreme in (np.full((2, 2), bound), np.full((2, 2), -bound)):
        integers = signed(encoding.encode({"b": extreme}))
        assert all(abs(clients * integer) < 2**60 for integer in integers)
        summed = np.array([clients * integer for integer in integers], "<i8").view("<u8")
        total = encoding.decode(summed, contributors=clients)
        assert np.allclose(total["b"], clients * extreme, rtol=1e-12)


def test_the_packed_norm_is_the_frobenius_norm() -> None:
    generator = np.random.default_rng(5)
    half = generator.normal(size=(30, 30))
    block = Block("s", (30, 30), bound=100.0, resolution=2**-40, symmetric=True)
    encoding = Encoding.finest(Layout((block,)), max_clients=3)
    packed = (
        np.array(signed(encoding.encode({"s": half + half.T})))
        / 2.0 ** (encoding.fractional_bits[0])
    )
    assert np.linalg.norm(packed) == pytest.approx(np.linalg.norm(half + half.T), rel=1e-14)


def test_long_blocks_are_encoded_like_short_ones() -> None:
    """Chunk boundaries make no difference, in flat blocks and in triangles."""
    generator = np.random.default_rng(7)
    flat = generator.uniform(-1, 1, 100_003)
    matrix = generator.uniform(-1, 1, (300, 300))
    matrix = np.triu(matrix) + np.triu(matrix, 1).T
    layout = Layout(
        (
            Block("flat", flat.shape, 1.0, 2**-40),
            Block("matrix", matrix.shape, 1.0, 2**-40, symmetric=True),
        )
    )
    encoding = Encoding.finest(layout, max_clients=10)
    vector = encoding.encode({"matrix": matrix, "flat": flat})
    total = encoding.decode(vector, contributors=1)
    for name, expected in (("flat", flat), ("matrix", matrix)):
        assert np.max(np.abs(total[name] - expected)) <= total.rounding(name) < 1e-15
    assert np.array_equal(total["matrix"], total["matrix"].T)


def test_empty_and_scalar_blocks_have_their_place() -> None:
    layout = Layout(
        (
            Block("none", (0, 3), 1.0, 0.5),
            Block("nothing", (0, 0), 1.0, 0.5, symmetric=True),
            Block("one", (1, 1), 1.0, 0.5, symmetric=True),
            Block("scalar", (), 1.0, 0.5),
        )
    )
    encoding = Encoding.finest(layout, max_clients=3)
    values = {"none": np.empty((0, 3)), "nothing": np.empty((0, 0)), "one": [[0.5]], "scalar": 1}
    total = encoding.decode(encoding.encode(values), contributors=1)
    assert total["none"].shape == (0, 3)
    assert total["nothing"].shape == (0, 0)
    assert total["one"].tolist() == [[0.5]]
    assert total["scalar"].tolist() == 1.0


def test_triangles_may_differ_by_the_rounding_of_a_matrix_product() -> None:
    values = contribution(np.random.default_rng(2))
    values["scatter"][0, 1] = 3.0
    values["scatter"][1, 0] = 3.0 + 2**-50
    ENCODING.encode(values)
    values["scatter"][1, 0] = 3.001
    with pytest.raises(NotSymmetric, match="scatter"):
        ENCODING.encode(values)


@pytest.mark.parametrize("name", ["scatter", "cross", "rows"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_value_beyond_its_bound_is_refused_without_being_told(name: str, sign: int) -> None:
    values = contribution(np.random.default_rng(3))
    beyond = float(np.nextafter(LAYOUT.block(name).bound, np.inf))
    values[name] = np.full(LAYOUT.block(name).shape, sign * beyond)
    with pytest.raises(OutOfBound) as refused:
        ENCODING.encode(values)
    message = str(refused.value)
    assert f"block {name} " in message
    assert f"±{LAYOUT.block(name).bound:g}" in message
    assert repr(beyond) not in message


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["scatter", "cross", "rows"])
def test_nan_and_infinity_are_refused(odd: float, name: str) -> None:
    values = contribution(np.random.default_rng(4))
    values[name] = np.array(values[name])
    values[name][(0,) * values[name].ndim] = odd
    with pytest.raises(NotFinite, match=name):
        ENCODING.encode(values)


def test_a_contribution_has_the_blocks_of_its_layout_and_no_other() -> None:
    values = contribution(np.random.default_rng(6))
    with pytest.raises(BlockMismatch, match="lacks these blocks: cross, rows"):
        ENCODING.encode({"scatter": values["scatter"]})
    with pytest.raises(BlockMismatch, match="1 blocks that are not in its layout"):
        ENCODING.encode(values | {"secret": 1.0})
    wrong: list[Any] = [
        np.zeros((3, 2)),
        np.zeros(6),
        np.zeros((2, 3), complex),
        np.full((2, 3), "1"),
        np.full((2, 3), None),
        np.zeros((2, 3), np.longdouble),
    ]
    for array in wrong:
        with pytest.raises(WrongShape, match="cross"):
            ENCODING.encode(values | {"cross": array})


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, bool])
def test_smaller_numbers_and_any_memory_order_are_read_exactly(dtype: Any) -> None:
    values = contribution(np.random.default_rng(8))
    exact = np.array([[1, 0, 1], [0, 1, 1]], dtype)
    expected = ENCODING.encode(values | {"cross": exact.astype(np.float64)})
    assert np.array_equal(ENCODING.encode(values | {"cross": exact}), expected)
    assert np.array_equal(ENCODING.encode(values | {"cross": np.asfortranarray(exact)}), expected)


def test_a_plan_that_cannot_hold_its_resolution_is_refused_at_construction() -> None:
    layout = Layout((Block("b", (), bound=1e6, resolution=2**-38),))
    with pytest.raises(ResolutionTooFine, match="block b: 33 fractional bits"):
        Encoding.finest(layout, max_clients=100)
    assert Encoding.finest(layout, max_clients=3).fractional_bits == (38,)
    with pytest.raises(ResolutionTooFine):
        Encoding(layout, 3, (37,))


def test_impossible_encodings_are_refused() -> None:
    cases: list[Any] = [
        (0, (30, 30, 0)),
        (2**20 + 1, (20, 20, 0)),
        (True, (30, 30, 0)),
        (5.0, (30, 30, 0)),
        (5, (30, 30)),
        (5, [30, 30, 0]),
        (5, (30, 30, 401)),
        (5, (30.0, 30, 0)),
    ]
    for clients, bits in cases:
        with pytest.raises(EncodingError):
            Encoding(LAYOUT, clients, bits)
    with pytest.raises(EncodingError):
        Encoding.finest(LAYOUT, max_clients=0)


def test_a_total_that_no_honest_members_can_have_is_refused() -> None:
    vectors = [ENCODING.encode(contribution(np.random.default_rng(seed))) for seed in range(3)]
    good = np.add.reduce(vectors)
    ENCODING.decode(good, contributors=3)
    poisoned = good.copy()
    poisoned[LAYOUT.offset("rows")] = 2**61
    with pytest.raises(TotalOutOfBound, match="block rows") as refused:
        ENCODING.decode(poisoned, contributors=3)
    assert refused.value.code == "total.out_of_bound"
    masked = np.random.default_rng(0).integers(0, 2**64, LAYOUT.length, dtype="<u8")
    with pytest.raises(TotalOutOfBound):
        ENCODING.decode(masked, contributors=200)


def test_a_total_of_another_form_is_refused() -> None:
    good = ENCODING.encode(contribution(np.random.default_rng(1)))
    wrong: list[Any] = [good[:-1], good.view("<i8"), good.astype(">u8"), good.reshape(1, -1), [1]]
    for vector in wrong:
        with pytest.raises(TotalError):
            ENCODING.decode(vector, contributors=3)
    members: list[Any] = [0, 201, -1, True, 3.0]
    for contributors in members:
        with pytest.raises(TotalError):
            ENCODING.decode(good, contributors=contributors)


def test_an_encoding_survives_its_canonical_form_and_nothing_else_is_read() -> None:
    data = ENCODING.to_bytes()
    assert Encoding.from_bytes(data) == ENCODING
    assert Encoding.from_bytes(data).digest() == ENCODING.digest()
    for cut in range(len(data)):
        with pytest.raises((EncodingError, LayoutError)):
            Encoding.from_bytes(data[:cut])
    with pytest.raises(LayoutError):
        Encoding.from_bytes(data + b"\0")
    for place in range(len(data)):
        for flip in (1, 0x80):
            bad = bytearray(data)
            bad[place] ^= flip
            try:
                other = Encoding.from_bytes(bytes(bad))
            except PrivacyError:
                continue
            assert other != ENCODING
            assert other.to_bytes() == bytes(bad)
            assert other.digest() != ENCODING.digest()


def test_a_client_checks_the_arithmetic_of_a_plan_when_it_arrives() -> None:
    """A15: bytes that would overflow are refused on arrival, not at the sum."""
    finer = tuple(bits + 1 for bits in ENCODING.fractional_bits)
    data = ENCODING.to_bytes()
    head = len(b"veilgp encoding 2\0") + 8
    forged = data[:head] + b"".join(bits.to_bytes(2, "big") for bits in finer) + data[head + 6 :]
    with pytest.raises(EncodingError, match="overflow"):
        Encoding.from_bytes(forged)
    with pytest.raises(EncodingError, match="overflow"):
        replace(ENCODING, fractional_bits=finer)
