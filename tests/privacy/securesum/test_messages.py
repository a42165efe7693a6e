"""Every message, record and saved state has one binary form, and no other bytes are accepted."""

import inspect
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.errors import PrivacyError
from privacy.securesum import coordinator, messages, records, summation, terms, wire
from privacy.securesum.errors import (
    BadField,
    MalformedMessage,
    NotAscending,
    TrailingBytes,
    Truncated,
    WrongKind,
    WrongVersion,
)
from privacy.securesum.messages import Certificate, Consent, Opening, Task
from privacy.securesum.wire import Message

KINDS = sorted(
    {
        cls
        for module in (messages, records, terms, summation, coordinator)
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if issubclass(cls, Message) and "kind" in vars(cls)
    },
    key=lambda cls: cls.kind,
)


def values(codec: wire.Codec) -> st.SearchStrategy:
    """Draw a valid value for a field."""
    match codec:
        case wire.Uint():
            return st.integers(0, 256**codec.size - 1)
        case wire.Flag():
            return st.booleans()
        case wire.Fixed():
            return st.binary(min_size=codec.size, max_size=codec.size)
        case wire.Blob():
            return st.binary(max_size=40)
        case wire.Text():
            return st.text(max_size=20)
        case wire.Ranks():
            return st.sets(st.integers(0, 199), max_size=4).map(lambda s: tuple(sorted(s)))
        case wire.Rows():
            row = st.binary(min_size=codec.size, max_size=codec.size)
            return st.lists(row, max_size=3).map(tuple)
        case wire.Many():
            return st.lists(instances(codec.message), max_size=min(2, codec.limit)).map(tuple)
        case wire.One():
            return instances(codec.message)
    raise NotImplementedError(codec)


@st.composite
def instances(draw, cls):
    """Draw a well-formed message of a class."""
    while True:
        drawn = {name: draw(values(codec)) for name, codec in cls._codecs()}
        match_lengths(drawn)
        try:
            return cls(**drawn)
        except PrivacyError:
            continue


def match_lengths(drawn: dict) -> None:
    """Make parallel lists equal in length, and sort sets of members, in place."""
    for name in ("old", "new"):
        if name in drawn and isinstance(drawn[name], tuple):
            drawn[name] = tuple(sorted(set(drawn[name])))
    if "adverts" in drawn:
        unique = {advert.identity: advert for advert in drawn["adverts"]}
        drawn["adverts"] = tuple(unique[key] for key in sorted(unique))
    if "min_cohort" in drawn:
        drawn["max_colluders"] = drawn["max_colluders"] % 60
        drawn["min_cohort"] = max(3, drawn["max_colluders"] + 2)
    groups = [
        ("signers", "signatures"),
        ("receivers", "sealed_shares", "share_hashes"),
        ("silent", "sealed_shares", "share_hashes"),
        ("silent", "shares"),
        ("dropped", "pair_keys"),
    ]
    for group in groups:
        if all(name in drawn for name in group):
            length = min(len(drawn[name]) for name in group)
            drawn.update({name: drawn[name][:length] for name in group})


@st.composite
def any_message(draw):
    return draw(instances(draw(st.sampled_from(KINDS))))


def test_every_kind_has_a_number_of_its_own():
    assert len({cls.kind for cls in KINDS}) == len(KINDS) > 30


@given(any_message())
@settings(max_examples=200)
def test_what_is_encoded_is_decoded_and_nothing_is_lost(message):
    assert type(message).decode(message.encode()) == message


@given(any_message(), st.data())
@settings(max_examples=150)
def test_a_message_cut_short_is_refused(message, data):
    encoded = message.encode()
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(MalformedMessage):
        type(message).decode(encoded[:cut])


@given(any_message(), st.binary(min_size=1, max_size=4))
def test_a_message_with_something_behind_it_is_refused(message, tail):
    with pytest.raises(MalformedMessage):
        type(message).decode(message.encode() + tail)


@given(any_message(), st.data())
@settings(max_examples=200)
def test_altered_bytes_are_refused_or_are_another_message_in_its_one_form(message, data):
    encoded = bytearray(message.encode())
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] ^= data.draw(st.integers(1, 255))
    try:
        read = type(message).decode(bytes(encoded))
    except PrivacyError:
        return
    assert read != message
    assert read.encode() == bytes(encoded)


@given(st.sampled_from(KINDS), st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing_but_the_declared_errors(cls, data):
    for candidate in (data, bytes((wire.VERSION, cls.kind)) + data):
        try:
            read = cls.decode(candidate)
        except PrivacyError:
            continue
        assert read.encode() == candidate


def test_each_way_of_being_malformed_has_its_own_name():
    task = Task(bytes(32), 0, "mean", b"", bytes(32), bytes(32), 3, (0, 1, 2), b"")
    data = task.encode()
    for version, side in ((1, "the side that sent"), (3, "veilgp here")):
        with pytest.raises(WrongVersion, match=side):
            Task.decode(bytes((version,)) + data[1:])
    with pytest.raises(WrongKind):
        Opening.decode(data)
    with pytest.raises(Truncated):
        Task.decode(data[:-1])
    with pytest.raises(Truncated):
        Task.decode(b"")
    with pytest.raises(TrailingBytes):
        Task.decode(data + b"\0")
    with pytest.raises(BadField):
        Task.decode("text")
    for active in [(1, 0), (1, 1)]:
        with pytest.raises(NotAscending, match=r"Task\.active"):
            Task(bytes(32), 0, "mean", b"", bytes(32), bytes(32), 3, active, b"")


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("epoch_id", bytes(31)),
        ("epoch_id", bytearray(32)),
        ("epoch_id", None),
        ("slot", -1),
        ("slot", 2**32),
        ("slot", True),
        ("slot", 1.0),
        ("statistic", b"mean"),
        ("statistic", "x" * 201),
        ("statistic", "\ud800"),
        ("parameters", b"x" * (2**20 + 1)),
        ("active", [0, 1]),
        ("active", (0, 200)),
        ("active", (0, "1")),
        ("active", tuple(range(201))),
        ("active", (False, 1)),
    ],
)
def test_a_field_of_the_wrong_type_or_range_is_named(field, bad):
    good = {
        "epoch_id": bytes(32), "slot": 0, "statistic": "mean", "parameters": b"",
        "state": bytes(32), "encoding": bytes(32), "length": 3, "active": (0, 1), "proof": b"",
    }  # fmt: skip
    with pytest.raises(MalformedMessage, match=rf"Task\.{field}"):
        Task(**{**good, field: bad})


def test_announced_lengths_beyond_the_limit_are_refused_before_anything_is_read():
    head = Task(bytes(32), 0, "", b"", bytes(32), bytes(32), 0, (), b"").encode()[:38]
    with pytest.raises(BadField, match="announced"):
        Task.decode(head + (2**63).to_bytes(8, "big"))


def test_parallel_lists_have_one_length():
    with pytest.raises(BadField, match="one signature per signer"):
        Certificate(bytes(32), 0, bytes(32), (0,), (0,), (0,), ())


def test_sets_of_members_are_listed_in_one_order():
    a, b = b"a" * 32, b"b" * 32
    with pytest.raises(NotAscending):
        Consent(bytes(16), (b, a), (a,), a, bytes(64))


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_fields_that_hold_secrets_show_in_no_repr(cls):
    secret = {
        "kem_secret",
        "seeds",
        "channels",
        "self_key",
        "pair_keys",
        "shares",
        "part",
    } | ({"key"} if cls is records.GroupSecrets else set())
    for field in fields(cls):
        if field.name in secret:
            assert not field.repr, f"{cls.__name__}.{field.name}"
