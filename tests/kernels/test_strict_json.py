"""Canonical JSON by RFC 8785: one text for equal data, and equal data back from it."""

import json
import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from kernels import storage
from kernels.errors import (
    OtherFormat,
    ProgramError,
    SchemaError,
    SpecError,
    StandardiserError,
    StateError,
)
from kernels.features.spec import KernelSpec
from kernels.rounds.program import Program
from kernels.strict_json import MOST_INTEGER, as_declared, encode_json, is_text, parse_json
from kernels.tables.schema import Schema
from kernels.tables.standardiser import Standardiser
from tests.golden import contents

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MOST_INTEGER, MOST_INTEGER)
    | FLOATS
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=12,
)


def parsed(text: str) -> object:
    problems: list[str] = []
    plain = parse_json(text, "the text", problems)
    assert not problems
    return plain


def test_the_example_of_the_rfc_is_written_as_the_rfc_writes_it() -> None:
    # RFC 8785, section 3.2.2 and 3.2.3.
    numbers = [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001]
    text = '\u20ac$\u000f\u000aA\'B"\\\\"/'
    plain = {"numbers": numbers, "string": text, "literals": [None, True, False]}
    assert encode_json(plain) == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\x80", "\u00f6"]
    order = ["\r", "1", "\x80", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    assert list(json.loads(encode_json(dict.fromkeys(keys)))) == order


@given(PLAIN)
def test_text_that_is_read_and_written_again_is_the_same_text(plain: object) -> None:
    text = encode_json(plain)
    assert parsed(text) == plain
    assert encode_json(parsed(text)) == text


@pytest.mark.parametrize(
    "plain", [math.nan, math.inf, MOST_INTEGER + 1, -MOST_INTEGER - 1, "\ud800", {1: 2}, {2}, b""]
)
def test_what_canonical_json_does_not_have_is_refused(plain: object) -> None:
    with pytest.raises(rfc8785.CanonicalizationError):
        encode_json(plain)


@pytest.mark.parametrize(
    "text", ['"\\ud800"', '{"\\uDC00x": 1}', '"\ud800"', '{"a":1,"a":1}', "9" * 5000]
)
def test_text_that_could_not_be_written_again_is_not_read(text: str) -> None:
    problems: list[str] = []
    parse_json(text, "the text", problems)
    assert len(problems) == 1
    assert not is_text("\ud800")


def test_a_surrogate_pair_is_one_character() -> None:
    assert parsed('"\\ud83d\\ude00"') == "\U0001f600"


def test_an_integer_beyond_doubles_is_read_as_the_float_it_was_written_from() -> None:
    assert encode_json(1e17) == "100000000000000000"
    assert type(parsed("100000000000000000")) is float
    assert type(parsed(str(MOST_INTEGER))) is int


@dataclass(frozen=True)
class _Stored:
    STORED_AS: ClassVar[str] = "stored"

    count: int
    share: float
    limit: float | None
    many: tuple[tuple[float, ...], ...]
    pair: tuple[str, float]


@given(FLOATS, FLOATS | st.none(), st.lists(st.lists(FLOATS).map(tuple)).map(tuple))
def test_a_stored_state_has_floats_where_it_had_them(
    share: float, limit: float | None, many: tuple[tuple[float, ...], ...]
) -> None:
    state = _Stored(7, share, limit, many, ("x", share))
    data = storage.encode(state)
    read = storage.decode(data, storage.kinds_of(_Stored))
    assert read == state
    assert repr(read).replace("-0.0", "0.0") == repr(state).replace("-0.0", "0.0")
    assert storage.encode(read) == data


def test_nothing_else_becomes_a_float() -> None:
    assert as_declared(float | int, 1) == 1
    assert type(as_declared(float | int, 1)) is int
    assert as_declared(float, True) is True
    assert as_declared(tuple[float, ...], "12") == "12"


def test_a_number_that_cannot_be_written_is_an_error_of_the_state() -> None:
    with pytest.raises(StateError, match="cannot be stored"):
        storage.encode(_Stored(2**53, 0.0, None, (), ("x", 0.0)))


LARGE = (MOST_INTEGER + 1, -105108623504638670, 10**30, 10**400)


@pytest.mark.parametrize("number", LARGE)
def test_no_reader_accepts_a_large_integer_where_an_integer_is_meant(number: int) -> None:
    program = json.loads(contents.PROGRAM.to_json())
    for field in ("max_rows", "least_rows", "version"):
        with pytest.raises(ProgramError):
            Program.from_json(json.dumps(program | {field: number}))
    kernel = json.loads(contents.KERNEL.to_json())
    with pytest.raises(SpecError, match="seed"):
        KernelSpec.from_json(json.dumps(kernel | {"seed": number}))
    schema = json.loads(contents.SCHEMA.to_json())
    with pytest.raises(SchemaError):
        Schema.from_json(json.dumps(schema | {"version": number}))
    standardiser = json.loads(contents.STANDARDISER.to_json())
    with pytest.raises(StandardiserError):
        Standardiser.from_json(json.dumps(standardiser | {"version": number}))


def test_formats_before_canonical_json_are_refused_by_name() -> None:
    old = json.loads(contents.PROGRAM.to_json()) | {"version": 1}
    with pytest.raises(ProgramError, match="version 1, and this veilgp reads only version 3"):
        Program.from_json(json.dumps(old))
    text = contents.PROGRAM.to_json()
    assert Program.from_json(json.dumps(json.loads(text), indent=1)).to_json() == text
    state = storage.encode(_Stored(1, 0.0, None, (), ("x", 0.0)))
    with pytest.raises(OtherFormat, match="storage format 2"):
        storage.decode(state.replace(b'"format":3', b'"format":2'), storage.kinds_of(_Stored))
