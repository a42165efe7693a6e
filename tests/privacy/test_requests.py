"""A signed request is valid only for this key, host, target and body, and only now."""

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import BadRequestHeader, BadSignature, ClockSkew, InvalidKey
from privacy.identity import Identity
from privacy.requests import WINDOW_MS, SignedRequest, sign_request

IDENTITY = Identity.from_bytes(bytes(range(32)))
OTHER = Identity.from_bytes(bytes(range(1, 33)))
HOST = "gp.example:8443"
NOW = 1_800_000_000_000


def header(identity: Identity = IDENTITY) -> str:
    return sign_request(
        identity,
        method="POST",
        host=HOST,
        target="/a?b=c",
        digest=hashlib.sha256(b"").digest(),
        now_ms=NOW,
        nonce=bytes(16),
    )


def test_a_request_is_accepted_within_the_window_only() -> None:
    request = SignedRequest.parse(header())
    for apart in (-WINDOW_MS, 0, WINDOW_MS):
        request.check(method="POST", host=HOST, target="/a?b=c", now_ms=NOW + apart)
    for apart in (-WINDOW_MS - 1, WINDOW_MS + 1):
        with pytest.raises(ClockSkew):
            request.check(method="POST", host=HOST, target="/a?b=c", now_ms=NOW + apart)


@pytest.mark.parametrize(
    ("method", "host", "target"),
    [
        ("GET", HOST, "/a?b=c"),
        ("POST", HOST, "/a?b=d"),
        ("POST", HOST, "/a"),
        ("POST", "gp.example", "/a?b=c"),
        ("POST", "other.example:8443", "/a?b=c"),
    ],
)
def test_a_request_is_for_its_own_place_only(method: str, host: str, target: str) -> None:
    with pytest.raises(BadSignature):
        SignedRequest.parse(header()).check(method=method, host=host, target=target, now_ms=NOW)


@pytest.mark.parametrize("part", ["key", "time", "nonce", "digest", "signature"])
def test_no_part_can_be_exchanged(part: str) -> None:
    changed = {
        "key": OTHER.key.hex(),
        "time": str(NOW + 1),
        "nonce": (b"1" * 16).hex(),
        "digest": hashlib.sha256(b"x").hexdigest(),
        "signature": "00" * 64,
    }
    forged = re.sub(f'{part}="[^"]*"', f'{part}="{changed[part]}"', header())
    with pytest.raises(BadSignature):
        SignedRequest.parse(forged).check(method="POST", host=HOST, target="/a?b=c", now_ms=NOW)


def test_a_key_that_signs_everything_is_refused() -> None:
    forged = re.sub('key="[^"]*"', 'key="01' + "00" * 31 + '"', header())
    with pytest.raises(InvalidKey):
        SignedRequest.parse(forged).check(method="POST", host=HOST, target="/a?b=c", now_ms=NOW)


@given(st.text())
def test_other_headers_are_refused_by_name(text: str) -> None:
    with pytest.raises(BadRequestHeader):
        SignedRequest.parse(text)


@pytest.mark.parametrize(
    "spoilt", [header().upper(), header() + " ", " " + header(), "Bearer x", ""]
)
def test_a_header_has_one_form(spoilt: str) -> None:
    with pytest.raises(BadRequestHeader):
        SignedRequest.parse(spoilt)
