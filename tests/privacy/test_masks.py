"""Masks are AES-256-CTR keystreams modulo 2^64, for any length, order and number of threads."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from privacy import masks
from privacy.errors import MaskError
from privacy.masks import apply_masks

KEYS = st.lists(st.binary(min_size=32, max_size=32), max_size=4)
LENGTHS = st.one_of(
    st.integers(0, 70),
    st.sampled_from([masks._BLOCK + step for step in (-2, -1, 0, 1, 2)]),
    st.sampled_from([2 * masks._BLOCK - 1, 3 * masks._BLOCK + 5]),
)


def keystream(key: bytes, length: int) -> list[int]:
    """Return the keystream as docs/protocol.md defines it, as a whole, as Python integers."""
    data = (
        Cipher(algorithms.AES256(key), modes.CTR((2).to_bytes(16, "big")))
        .encryptor()
        .update(bytes(8 * length))
    )
    return [int.from_bytes(data[8 * i : 8 * i + 8], "little") for i in range(length)]


def vector(length: int, seed: int = 0) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**64, length, dtype="<u8")


@given(length=st.integers(0, 40), add=KEYS, subtract=KEYS)
def test_a_mask_is_the_keystream_modulo_2_to_the_64(
    length: int, add: list[bytes], subtract: list[bytes]
) -> None:
    masked = vector(length)
    expected = [int(element) for element in masked]
    for key in add:
        expected = [x + k for x, k in zip(expected, keystream(key, length), strict=True)]
    for key in subtract:
        expected = [x - k for x, k in zip(expected, keystream(key, length), strict=True)]
    apply_masks(masked, add=add, subtract=subtract)
    assert [int(element) for element in masked] == [x % 2**64 for x in expected]


@pytest.mark.parametrize("length", [masks._BLOCK - 1, masks._BLOCK, masks._BLOCK + 1, 70_001])
def test_the_keystream_runs_on_across_blocks(length: int) -> None:
    key = bytes(range(32))
    masked = np.zeros(length, "<u8")
    apply_masks(masked, add=[key])
    assert masked.tolist() == keystream(key, length)


def test_the_generator_is_aes_256_in_counter_mode() -> None:
    """The zero key and nonce: case 14 of the test vectors of [McGrewViega]."""
    masked = np.zeros(2, "<u8")
    apply_masks(masked, add=[bytes(32)])
    assert masked.tobytes().hex() == "cea7403d4d606b6e074ec5d3baf39d18"


@given(length=LENGTHS, add=KEYS, subtract=KEYS)
def test_what_one_side_adds_the_other_takes_off(
    length: int, add: list[bytes], subtract: list[bytes]
) -> None:
    masked = vector(length)
    apply_masks(masked, add=add, subtract=subtract)
    apply_masks(masked, add=subtract, subtract=add)
    assert np.array_equal(masked, vector(length))


@pytest.mark.parametrize("workers", [2, 3, 8, None])
@pytest.mark.parametrize("length", [4 * masks._BLOCK, 5 * masks._BLOCK + 3])
def test_threads_change_nothing(
    monkeypatch: pytest.MonkeyPatch, workers: int | None, length: int
) -> None:
    monkeypatch.setattr(masks, "_WORTH_A_THREAD", 1)
    keys = [bytes([i]) * 32 for i in range(5)]
    alone, together = vector(length), vector(length)
    apply_masks(alone, add=keys[:3], subtract=keys[3:], workers=1)
    apply_masks(together, add=keys[:3], subtract=keys[3:], workers=workers)
    assert np.array_equal(alone, together)
    assert not np.array_equal(alone, vector(length))


def read_only() -> NDArray[np.uint64]:
    frozen = vector(4)
    frozen.flags.writeable = False
    return frozen


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(4, "<i8"),
        np.zeros(4, "<f8"),
        np.zeros(4, ">u8"),
        np.zeros(4, "<u4"),
        np.zeros((2, 2), "<u8"),
        np.zeros(8, "<u8")[::2],
        read_only(),
        [0, 0, 0, 0],
    ],
    ids=["signed", "float", "big-endian", "32-bit", "matrix", "strided", "read-only", "list"],
)
def test_only_a_writable_vector_of_uint64_is_masked(wrong: NDArray[np.uint64]) -> None:
    before = np.array(wrong)
    with pytest.raises(MaskError):
        apply_masks(wrong, add=[bytes(32)])
    assert np.array_equal(before, wrong)


@pytest.mark.parametrize("key", [b"", bytes(16), bytes(31), bytes(33), bytearray(32)])
def test_a_key_of_another_length_is_refused_before_anything_changes(key: bytes) -> None:
    masked = vector(4)
    with pytest.raises(MaskError) as refused:
        apply_masks(masked, add=[bytes(32)], subtract=[key])
    assert np.array_equal(masked, vector(4))
    assert refused.value.code == "mask.invalid"


def test_no_worker_is_refused() -> None:
    with pytest.raises(MaskError):
        apply_masks(vector(4), add=[bytes(32)], workers=0)
