"""Identities: keys that nobody else can use, fingerprints, rosters and pins."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import BadSignature, FingerprintMismatch, InvalidKey, PinConflict, RosterError
from privacy.framing import Label, frame
from privacy.identity import Identity, Member, Pins, Roster, check_key, fingerprint, verify

SMALL_ORDER = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    # the same points, not in canonical form
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


def roster_of(n: int) -> tuple[list[Identity], Roster]:
    identities = [Identity.from_bytes(bytes([i + 1]) * 32) for i in range(n)]
    return identities, Roster(tuple(Member(f"h{i}", x.key) for i, x in enumerate(identities)))


def test_a_signature_serves_one_purpose_one_statement_and_one_signer():
    signer, other = Identity.generate(), Identity.generate()
    signature = signer.sign(Label.CERTIFY, b"epoch", b"slot")
    verify(signer.key, signature, Label.CERTIFY, b"epoch", b"slot")
    for key, label, parts in [
        (signer.key, Label.ABANDON, (b"epoch", b"slot")),
        (signer.key, Label.CERTIFY, (b"epochs", b"lot")),
        (signer.key, Label.CERTIFY, (b"epoch",)),
        (other.key, Label.CERTIFY, (b"epoch", b"slot")),
    ]:
        with pytest.raises(BadSignature):
            verify(key, signature, label, *parts)


@given(st.binary(max_size=100))
def test_no_bytes_pass_for_a_signature(data):
    with pytest.raises(BadSignature):
        verify(Identity.from_bytes(b"s" * 32).key, data, Label.ADVERT, b"")


@given(
    st.lists(st.binary(max_size=5), max_size=4),
    st.lists(st.binary(max_size=5), max_size=4),
)
def test_different_lists_of_parts_never_give_the_same_bytes(one, other):
    assert (frame(Label.BOX, *one) == frame(Label.BOX, *other)) == (one == other)


@pytest.mark.parametrize("encoded", SMALL_ORDER)
def test_keys_with_which_anyone_could_sign_are_refused(encoded):
    with pytest.raises(InvalidKey):
        Member("mallory", bytes.fromhex(encoded))


@pytest.mark.parametrize("key", [b"", b"short", bytes(33), "x" * 32, None])
def test_what_is_not_a_key_is_refused_by_name(key):
    with pytest.raises(InvalidKey):
        check_key(key)


def test_the_private_key_survives_saving_and_shows_in_no_repr():
    identity = Identity.generate(random.Random(1).randbytes)
    again = Identity.from_bytes(identity.to_bytes())
    assert again.key == identity.key
    assert repr(identity) == f"Identity({fingerprint(identity.key)})"
    assert identity.to_bytes().hex() not in repr(identity)
    with pytest.raises(InvalidKey):
        Identity.from_bytes(b"short")


def test_a_fingerprint_can_be_read_out_over_the_phone():
    groups = Identity.generate().fingerprint.split(" ")
    assert len(groups) == 8
    assert all(len(group) == 5 and group.isdigit() for group in groups)


def test_a_roster_has_every_member_once_whatever_the_order_it_came_in():
    _, roster = roster_of(4)
    assert Roster(roster.members[::-1]).digest() == roster.digest()
    first = roster.members[0]
    with pytest.raises(RosterError, match="same key"):
        Roster((*roster.members, Member("twin", first.key)))
    with pytest.raises(RosterError, match="same name"):
        Roster((*roster.members, Member(first.name, Identity.generate().key)))
    with pytest.raises(RosterError, match="3 to 200"):
        Roster(roster.members[:2])
    assert Roster(roster.members[:3]).digest() != roster.digest()


def test_a_key_met_on_first_use_counts_only_after_it_was_confirmed():
    identities, roster = roster_of(3)
    pins = Pins().meet(roster)
    assert pins.trusted(roster) == frozenset()
    pins = pins.confirm("h1", identities[1].fingerprint.replace(" ", "  "))
    assert pins.trusted(roster) == {identities[1].key}


def test_trust_on_first_use_is_a_policy_that_must_be_named():
    _, roster = roster_of(3)
    assert Pins(trust_first_use=True).meet(roster).trusted(roster) == roster.keys


def test_digits_of_another_key_confirm_nothing():
    identities, roster = roster_of(3)
    pins = Pins().meet(roster)
    with pytest.raises(FingerprintMismatch):
        pins.confirm("h1", identities[2].fingerprint)
    with pytest.raises(FingerprintMismatch):
        pins.confirm("nobody", identities[2].fingerprint)


def test_a_roster_that_swaps_a_pinned_key_is_refused():
    identities, roster = roster_of(3)
    pins = Pins({"h0": identities[0].key})
    swapped = Roster(
        (Member("h0", Identity.generate().key), *(m for m in roster.members if m.name != "h0"))
    )
    renamed = Roster(
        (Member("h9", identities[0].key), *(m for m in roster.members if m.name != "h0"))
    )
    for bad in (swapped, renamed):
        with pytest.raises(PinConflict):
            pins.meet(bad)
        with pytest.raises(PinConflict):
            pins.trusted(bad)
