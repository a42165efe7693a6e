"""A3: members that the attacker invents are refused, or count as tolerated colluders."""

from dataclasses import replace

import pytest

from privacy.errors import FingerprintMismatch, InvalidKey, PinConflict, RosterError
from privacy.identity import Identity, Member, Pins, Roster, fingerprint
from privacy.securesum.errors import (
    ForgedAdvert,
    NotAscending,
    NotOnRoster,
    OwnAdvertMissing,
    Unpinned,
)
from privacy.securesum.messages import NO_ARCHIVE, Advert, Adverts
from privacy.securesum.sealing import public_key

from .coordinator import RUN, SESSION, Attacker, Lair


def with_invented(attacker: Attacker, real: int, invented: int) -> Lair:
    """Return an epoch with members invented by the attacker, all on the coordinator's roster."""
    puppets = [Identity.generate(attacker.random) for _ in range(invented)]
    adverts = [
        Advert.signed(
            puppet, session=SESSION, run=RUN, number=0, identity=puppet.key,
            kem_key=public_key(attacker.random(96)), archive_key=NO_ARCHIVE, software="",
        )
        for puppet in puppets
    ]  # fmt: skip
    adverts += attacker.adverts(attacker.opening(), attacker.hospitals[:real]).adverts
    attacker.roster = Roster(
        (
            *attacker.roster.members,
            *(Member(f"puppet {i}", puppet.key) for i, puppet in enumerate(puppets)),
        )
    )
    return attacker.lair(Adverts(tuple(sorted(adverts, key=lambda advert: advert.identity))))


def test_one_honest_member_among_puppets_refuses():
    lair = with_invented(Attacker(5), real=1, invented=4)
    (victim,) = lair.members
    with pytest.raises(Unpinned):
        lair.agree(victim)


def test_one_puppet_is_one_too_many():
    """It would hold the group key, however many colluders the session tolerates."""
    lair = with_invented(Attacker(5, colluders=1, least=3), real=4, invented=1)
    with pytest.raises(Unpinned):
        lair.agree(next(iter(lair.members)))


def test_puppets_that_were_only_met_are_not_pinned():
    attacker = Attacker(5, colluders=1, least=4)
    lair = with_invented(attacker, real=3, invented=2)
    attacker.pins = attacker.pins.meet(attacker.roster)
    with pytest.raises(Unpinned):
        lair.agree(next(iter(lair.members)))
    # Keys that were only met count only if the site's own policy says so.
    attacker.pins = replace(attacker.pins, trust_first_use=True)
    lair.agree(next(iter(lair.members)))


def test_a_member_counts_once():
    """A colluder that is listed twice would count twice towards the cohort."""
    attacker = Attacker()
    adverts = attacker.adverts(attacker.opening(), attacker.hospitals).adverts
    with pytest.raises(NotAscending):
        Adverts((*adverts, adverts[4]))
    member = attacker.roster.members[4]
    with pytest.raises(RosterError, match="same key"):
        Roster((*attacker.roster.members, Member("another name", member.key)))
    puppet = Identity.generate(attacker.random)
    with pytest.raises(RosterError, match="same name"):
        Roster((*attacker.roster.members, Member(member.name, puppet.key)))


# -- identities


def test_a_member_that_is_not_on_the_roster_is_refused():
    attacker = Attacker()
    adverts = attacker.adverts(attacker.opening(), attacker.hospitals)
    attacker.roster = Roster(attacker.roster.members[1:])
    with pytest.raises(NotOnRoster):
        attacker.lair(adverts).agree(4)


def test_an_advert_in_another_members_name_is_refused():
    """The attacker replaces the key of hospital 4 to which others seal by its own."""
    attacker = Attacker()
    adverts = attacker.adverts(attacker.opening(), attacker.hospitals)
    own = public_key(attacker.random(96))
    forged = replace(adverts.adverts[4], kem_key=own)
    with pytest.raises(ForgedAdvert):
        attacker.lair(Adverts((*adverts.adverts[:4], forged))).agree(0)
    # Signing it with the attacker's own key does not help.
    puppet = Identity.generate(attacker.random)
    resigned = Advert.signed(
        puppet, session=SESSION, run=RUN, number=0, identity=adverts.adverts[4].identity,
        kem_key=own, archive_key=NO_ARCHIVE, software="",
    )  # fmt: skip
    with pytest.raises(ForgedAdvert):
        attacker.lair(Adverts((*adverts.adverts[:4], resigned))).agree(0)


def test_the_victims_own_advert_must_be_in_the_list_as_it_was_sent():
    """Not even another advert of the victim is accepted, as from a second machine with its key."""
    attacker = Attacker()
    adverts = attacker.adverts(attacker.opening(), attacker.hospitals)
    victim = attacker.hospitals[0]
    other = Advert.signed(
        victim.identity, session=SESSION, run=RUN, number=0, identity=victim.key,
        kem_key=public_key(attacker.random(96)), archive_key=NO_ARCHIVE, software="",
    )  # fmt: skip
    for shown in ((other, *adverts.adverts[1:]), adverts.adverts[1:]):
        lair = attacker.lair(adverts)
        lair.adverts = Adverts(shown)
        with pytest.raises(OwnAdvertMissing):
            lair.agree(0)


def test_a_roster_with_another_key_for_a_pinned_name_is_refused():
    attacker = Attacker()
    lair = attacker.lair(attacker.adverts(attacker.opening(), attacker.hospitals))
    other = Identity.generate(attacker.random)
    attacker.pins = Pins({**attacker.pins.confirmed, "hospital 0": other.key})
    with pytest.raises(PinConflict, match="another key"):
        lair.agree(1)


def test_a_roster_that_gives_a_pinned_key_another_name_is_refused():
    attacker = Attacker()
    lair = attacker.lair(attacker.adverts(attacker.opening(), attacker.hospitals))
    attacker.pins = Pins({"hospital 9": attacker.hospitals[0].key})
    with pytest.raises(PinConflict, match="hospital 9"):
        lair.agree(1)


def test_digits_that_were_not_read_out_confirm_nothing():
    attacker = Attacker()
    met = Pins().meet(attacker.roster)
    wrong = fingerprint(attacker.hospitals[1].key)
    with pytest.raises(FingerprintMismatch):
        met.confirm("hospital 0", wrong)
    assert not met.trusted(attacker.roster)
    right = met.confirm("hospital 0", fingerprint(attacker.hospitals[0].key))
    assert right.trusted(attacker.roster) == {attacker.hospitals[0].key}


@pytest.mark.parametrize("y", [0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18])
def test_a_key_for_which_anyone_can_sign_is_no_member(y):
    with pytest.raises(InvalidKey):
        Member("puppet", y.to_bytes(32, "little"))
