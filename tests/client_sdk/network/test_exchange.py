"""Requests are signed, lost ones are repeated, and responses of other servers are recognised."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.errors import (
    ClientError,
    DeadlinePassed,
    MalformedAnswer,
    NotACoordinator,
    ProtocolMismatch,
    RefusedByCoordinator,
    Unreachable,
)
from client_sdk.network.exchange import (
    Call,
    Clock,
    Effects,
    Exchange,
    Lost,
    Patience,
    Pause,
    Reply,
    SendResult,
)
from kernels.errors import KernelsError
from privacy.errors import ClockSkew, PrivacyError
from privacy.identity import Identity
from privacy.requests import SignedRequest
from privacy.securesum.errors import OutOfOrder
from tests.client_sdk.coordinator import HOST, PROTOCOL, problem, said

IDENTITY = Identity.from_bytes(bytes(range(32)))
Answer = Reply | Lost | Callable[[Call], Reply | Lost]


class World:
    """A clock advanced by waits, and scripted responses; the last one is repeated."""

    def __init__(self, *answers: Answer, **patience: Any) -> None:
        self.now_s = 0.0
        self.calls: list[Call] = []
        self.waits: list[float] = []
        self.notices: list[str] = []
        self._answers = list(answers)
        clock = Clock(lambda: datetime.fromtimestamp(1e9 + self.now_s, UTC), lambda: self.now_s)
        self.exchange = Exchange(
            IDENTITY,
            host=HOST,
            patience=Patience(**patience),
            clock=clock,
            notice=lambda reason, _: self.notices.append(reason),
        )

    def run(self, effects: Effects[Any]) -> Any:
        answer: Any = None
        try:
            while True:
                effect = effects.send(answer)
                if isinstance(effect, Pause):
                    self.waits.append(effect.seconds)
                    self.now_s += effect.seconds
                    answer = None
                else:
                    self.calls.append(effect)
                    answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                    if callable(answer):
                        answer = answer(effect)
        except StopIteration as done:
            return done.value


def test_every_request_is_signed_anew_over_what_it_is() -> None:
    world = World(Lost("gone"), said({"a": 1}))
    assert world.run(world.exchange.get_json("/sessions/x/membership?y=1")) == {"a": 1}
    signed = [SignedRequest.parse(call.headers["Authorization"]) for call in world.calls]
    for request in signed:
        assert request.key == IDENTITY.key
        request.check(
            method="GET",
            host=HOST,
            target="/sessions/x/membership?y=1",
            now_ms=request.time_ms,
        )
    assert signed[0].nonce != signed[1].nonce
    assert signed[1].time_ms > signed[0].time_ms


def test_losses_and_restarts_are_asked_again_with_growing_waits() -> None:
    losses = [Lost("refused"), *(Reply(status, {}, b"") for status in (408, 502, 503, 504))] * 2
    world = World(*losses, said({}))
    world.run(world.exchange.get_json("/x"))
    assert len(world.calls) == 11
    for i, wait in enumerate(world.waits):
        longest = min(0.25 * 2**i, 30.0)
        assert longest / 2 <= wait <= longest
    assert world.notices[:2] == ["refused", "status 408"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 422, 429])
def test_a_refusal_is_an_answer_and_is_not_asked_again(status: int) -> None:
    world = World(problem(status, "invitation_used", "by another key"))
    with pytest.raises(RefusedByCoordinator) as refused:
        world.run(world.exchange.get_json("/x"))
    assert (refused.value.code, len(world.calls)) == ("invitation_used", 1)


def test_patience_ends() -> None:
    world = World(Lost("refused"), outage_s=100.0)
    with pytest.raises(Unreachable, match="refused"):
        world.run(world.exchange.get_json("/x"))
    assert 100 < world.now_s < 160
    world = World(Lost("refused"), deadline_s=50.0)
    with pytest.raises(DeadlinePassed, match="Nothing is lost"):
        world.run(world.exchange.get_json("/x"))
    assert 50 < world.now_s < 90


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, {"content-type": "text/html\x1b[2J"}, b"<html>Please sign in</html>"),
        Reply(302, {"location": "https://portal.example"}, b""),
        Reply(403, {"content-type": "text/html"}, b"<html>blocked</html>"),
        Reply(407, {}, b""),
    ],
)
def test_a_proxys_page_is_not_mistaken_for_a_coordinator(reply: Reply) -> None:
    world = World(reply)
    with pytest.raises(NotACoordinator) as refused:
        world.run(world.exchange.get_json("/x"))
    assert len(world.calls) == 1
    assert "\x1b" not in str(refused.value)


def test_another_protocol_says_which_side_to_upgrade() -> None:
    newer = {**PROTOCOL, "veilgp-protocol": "3"}
    world = World(Reply(200, newer, b"{}"))
    with pytest.raises(ProtocolMismatch, match=r"protocol 3.*upgrade veilgp here"):
        world.run(world.exchange.get_json("/x"))
    world = World(problem(426, "protocol.mismatch", "upgrade the hospital's veilgp", newest=3))
    with pytest.raises(ProtocolMismatch, match="upgrade the hospital"):
        world.run(world.exchange.get_json("/x"))


def test_a_clock_that_is_wrong_is_told_with_both_times() -> None:
    world = World(problem(401, "request.clock", "too far", time="2026-11-16T09:00:00Z"))
    with pytest.raises(ClockSkew) as refused:
        world.run(world.exchange.get_json("/x"))
    assert "2026-11-16T09:00:00Z" in str(refused.value)
    assert "2001-09-09T01:46:40+00:00" in str(refused.value)


def test_known_codes_raise_their_own_class_again() -> None:
    world = World(problem(400, OutOfOrder.code, "not now"))
    with pytest.raises(OutOfOrder, match="the coordinator says: not now"):
        world.run(world.exchange.get_json("/x"))


def test_octets_that_came_too_late_are_the_callers_to_judge() -> None:
    world = World(problem(409, OutOfOrder.code, "not now"))
    sent = world.run(world.exchange.send("/x", b"ab", memoryview(b"cd")))
    assert isinstance(sent.conflict, OutOfOrder)
    assert world.calls[0].length == 4
    world = World(said(status=204))
    assert world.run(world.exchange.send("/x", b"ab")) == SendResult()


@given(
    status=st.integers(200, 599),
    version=st.sampled_from(["1", "2", "", None]),
    body=st.one_of(
        st.binary(),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ).map(lambda plain: json.dumps(plain).encode()),
        st.fixed_dictionaries(
            {"code": st.text() | st.integers(), "detail": st.text() | st.none()}
        ).map(lambda plain: json.dumps(plain).encode()),
    ),
)
def test_any_answer_is_an_object_or_a_named_error(
    status: int, version: str | None, body: bytes
) -> None:
    headers = {} if version is None else {"veilgp-protocol": version}
    world = World(Reply(status, headers, body), outage_s=0.1)
    try:
        said_or_raised = world.run(world.exchange.get_json("/x"))
    except (ClientError, KernelsError, PrivacyError) as error:
        said_or_raised = error
    assert isinstance(said_or_raised, dict) or str(said_or_raised).isprintable()


def test_answers_in_another_encoding_are_refused() -> None:
    world = World(Reply(200, {**PROTOCOL, "content-encoding": "gzip"}, b"{}"))
    with pytest.raises(MalformedAnswer):
        world.run(world.exchange.get_json("/x"))
