"""A33: forged certificates of models, and models that are signed or handed over too easily."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from client_sdk.conversation.finishing import FetchedModel, Finishing, check_certified
from client_sdk.conversation.hospital_side import HospitalSide
from client_sdk.errors import CardNotSigned, ModelNotVouched, WrongRun
from client_sdk.home.remembered import Holding, KnownRun
from client_sdk.model.known_members import KnownMembers
from client_sdk.model.vouching import read_certificate, vouched_for
from kernels.model.artifact import Artifact, published
from kernels.storage import encode
from privacy.framing import Label, derive, digest, frame
from privacy.identity import Identity, Pins
from privacy.members.archive import open_archive
from privacy.members.endorsement import (
    NO_SALT,
    Endorsement,
    ModelCertificate,
    ModelStatement,
    model_commitment,
)
from privacy.members.padding import padded
from privacy.securesum.errors import (
    BadField,
    ForgedEndorsement,
    ForgedSignature,
    NotTheEndorsedModel,
    StaleSlot,
    TooFewEndorsements,
    TooFewSigners,
    UnreadableArchive,
)
from privacy.securesum.item_kinds import ItemKind
from privacy.securesum.messages import Certificate
from privacy.securesum.sealing import private_key, unseal
from privacy.securesum.terms import Terms
from tests.certified import HOSPITALS, ROSTER, certificate_of, signable
from tests.kernels.rounds.artifacts import artifact
from tests.privacy.members.test_endorsement import Archived

from .blind_run import SESSION, BlindRun, participation, result, side_of

MODEL, STATE = b"safetensors", bytes(range(32))
CRAFTED = b"a model with a feature that is nonzero for one patient"
COLLUDER = Identity.from_bytes(bytes(range(32)))
SALT = bytes(32)


def alone(members: int) -> ModelStatement:
    """Return what a colluder states alone; the number of members is set behind the check's back."""
    other = bytes(32)
    statement = ModelStatement(
        session=bytes(16),
        run=bytes(16),
        epoch_id=other,
        members=3,
        max_colluders=0,
        program=other,
        roster=other,
        parent=other,
        model=model_commitment(SALT, CRAFTED),
        state=other,
        context=other,
    )
    object.__setattr__(statement, "members", members)
    return statement


def signed_alone(members: int) -> ModelCertificate:
    endorsement = Endorsement.signed(
        COLLUDER, rank=0, statement=alone(members), salt=SALT, results=b""
    )
    return ModelCertificate.of([endorsement], (COLLUDER.key,))


def hospital() -> HospitalSide:
    """Return a hospital that has confirmed the colluder's key."""
    pins = Pins(confirmed={"colluder": COLLUDER.key})
    store = SimpleNamespace(pins=lambda *_, **__: pins)
    home = SimpleNamespace(store=store, identity=Identity.generate())
    policy = SimpleNamespace(trust_first_use=False)
    side: Any = SimpleNamespace(home=home, policy=policy, session="session", roster={})
    return cast(HospitalSide, side)


@pytest.mark.parametrize("members", [0, 1, 2])
def test_a_model_of_fewer_than_three_members_is_not_read(members: int) -> None:
    """With n = 1 and m = 0 the quorum would be one: the colluder that made up the model."""
    with pytest.raises(BadField):
        ModelCertificate.decode(signed_alone(members).encode())


@pytest.mark.parametrize("members", [1, 3])
def test_one_signature_is_no_certificate_in_a_session_without_colluders(members: int) -> None:
    lax = Terms(bytes(16), 0, 3, differential_privacy=False, blind=True)
    model = FetchedModel("id", CRAFTED, {}, signed_alone(members))
    with pytest.raises(TooFewEndorsements):
        check_certified(hospital(), lax, model, starts=True)


# -- what a hospital signs


def ended(run: BlindRun, rank: int, certificate: Certificate, data: bytes = MODEL) -> Endorsement:
    """Let a hospital sign a model under a sum."""
    step = run.client(rank).endorse(
        certificate, program=bytes(32), parent=None, data=data, state=STATE, results=b""
    )
    run.site(rank).persist(step)
    return step.message


def test_a_model_is_not_signed_under_a_sum_that_another_one_followed() -> None:
    """The statement would name a context, and so salts, of an earlier state of the run."""
    run = BlindRun()
    run.sum()
    first = run.last
    run.sum()
    with pytest.raises(StaleSlot):
        ended(run, 0, first)
    ended(run, 0, run.last)


def test_a_model_is_not_signed_under_a_sum_that_members_have_not_certified() -> None:
    """Otherwise the coordinator chooses the context, and has a model signed under any."""
    run = BlindRun()
    run.sum()
    good = run.last
    chosen = replace(good, context=bytes(32))
    with pytest.raises(ForgedSignature):
        ended(run, 0, chosen)
    later = replace(good, slot=good.slot + 7)
    with pytest.raises(ForgedSignature):
        ended(run, 0, later)
    few = replace(good, signers=good.signers[:1], signatures=good.signatures[:1])
    with pytest.raises(TooFewSigners):
        ended(run, 0, few)


def test_the_salts_of_a_model_and_of_its_state_are_not_public() -> None:
    """With them the coordinator compares guesses of a model for members, or of the final state."""
    said, salts = [], []
    context = bytes(32)
    for _ in range(2):
        run = BlindRun(members_only=True)
        run.sum()
        endorsement = ended(run, 0, run.last)
        assert endorsement.salt == NO_SALT
        said.append(endorsement.statement)
        epoch_id = run.epoch.epoch_id
        salts.append(run.client(0).model_salt(epoch_id, context))
        assert run.client(1).model_salt(epoch_id, context) == salts[-1]
        public = (bytes(32), epoch_id, run.last.context, endorsement.statement.model)
        for salt in (*public, *(derive(each, Label.MODEL_SALT, context) for each in public)):
            assert salt != salts[-1]
            assert model_commitment(salt, MODEL) != endorsement.statement.model
            assert digest(Label.FINAL_STATE, salt, STATE) != endorsement.statement.state
        own = run.client(0).model_salt(epoch_id, run.last.context)
        assert model_commitment(own, MODEL) == endorsement.statement.model
        assert digest(Label.FINAL_STATE, own, STATE) != endorsement.statement.state, "one salt each"
    assert salts[0] != salts[1], "one context, two group keys"
    assert said[0].state != said[1].state, "one state, two group keys"


def test_a_guess_of_the_model_is_neither_confirmed_nor_refuted() -> None:
    """With blind sums hospitals answer alike, whatever digest the coordinator sends."""
    run = BlindRun(members_only=True)
    holding = run.finish()
    data = encode(published(holding.newest.state.model))
    request = run.simulation.coordinator.author_request()
    for rank, guess in enumerate((None, hashlib.sha256(data).hexdigest(), "00" * 32)):
        item = run.item(ItemKind.ENDORSE, request, last_certificate=run.last.encode())
        frame = replace(item.frame, content={"model_digest": guess})
        signed = result(finishing(run, rank).endorsed(replace(item, frame=frame), holding))
        assert signed.message.rank == rank


# -- what a hospital hands over


def finishing(run: BlindRun, rank: int) -> Finishing:
    return Finishing(side_of(run, rank, [], None), run.simulation.terms, run.run)


def certified(run: BlindRun, holding: Holding, ranks: Iterable[int]) -> ModelCertificate:
    data = encode(published(holding.newest.state.model))
    signed = [ended(run, rank, run.last, data) for rank in ranks]
    return ModelCertificate.of(signed, run.epoch.members)


def test_a_model_is_handed_over_to_the_certificate_of_a_quorum_only() -> None:
    """One signature is enough for the coordinator to ask; the model is for q members to release."""
    run = BlindRun()
    holding = run.finish()
    assert run.epoch.quorum == 3
    whole = certified(run, holding, range(4))
    signed = whole.signers, whole.signatures, whole.results_signatures
    for most in (0, 1, 2):
        first = [each[:most] for each in signed]
        few = replace(whole, signers=first[0], signatures=first[1], results_signatures=first[2])
        with pytest.raises(TooFewEndorsements):
            finishing(run, 0).handed_over(run.item(ItemKind.HANDOVER, few), holding)
    forged = replace(whole, signatures=(bytes(64), *whole.signatures[1:]))
    with pytest.raises(ForgedEndorsement):
        finishing(run, 0).handed_over(run.item(ItemKind.HANDOVER, forged), holding)
    given = finishing(run, 0).handed_over(run.item(ItemKind.HANDOVER, whole), holding)
    assert given is not None
    assert given[1] == (encode(published(holding.newest.state.model)),)


@pytest.mark.parametrize("change", [{"session": bytes(16)}, {"run": bytes(16)}, {"members": 3}])
def test_a_model_is_not_handed_over_to_the_certificate_of_another_run(
    change: dict[str, Any],
) -> None:
    """Three members of a run that all collude, or state fewer members, would need less."""
    run = BlindRun()
    holding = run.finish()
    whole = certified(run, holding, range(4))
    other = replace(whole.statement, **change)
    endorsements = [
        Endorsement.signed(
            run.site(rank).identity, rank=rank, statement=other, salt=whole.salt, results=b""
        )
        for rank in range(3)
    ]
    certificate = ModelCertificate.of(endorsements, run.epoch.members)
    with pytest.raises(WrongRun):
        finishing(run, 0).handed_over(run.item(ItemKind.HANDOVER, certificate), holding)


def test_another_model_than_the_certified_one_is_not_handed_over() -> None:
    run = BlindRun()
    holding = run.finish()
    before = replace(holding, newest=replace(holding.newest, state=_other(holding)))
    whole = certified(run, holding, range(4))
    assert finishing(run, 0).handed_over(run.item(ItemKind.HANDOVER, whole), before) is None


def _other(holding: Holding) -> Any:
    state = holding.newest.state
    return replace(state, model=replace(state.model, max_rows=state.model.max_rows + 1))


def test_a_model_is_not_handed_over_before_the_end_of_the_program() -> None:
    """Even to a certificate of all members, which only colluders would have signed."""
    run = BlindRun()
    for _ in range(3):
        run.sum()
    holding = run.newest(0)
    assert not holding.newest.finished
    certificate = certified(run, holding, range(4))
    item = run.item(ItemKind.HANDOVER, certificate)
    assert finishing(run, 0).handed_over(item, holding) is not None, "nothing else stops it"
    known = KnownRun(str(run.run.run), str(SESSION), "train", run.run.text)
    sent: list[Any] = []
    part = participation(run, 0, sent, holding)
    list(part._hand_over(item, known))
    assert not sent


# -- archives


def test_an_archive_that_was_changed_is_not_opened() -> None:
    archived = Archived()
    header, sealed = archived.sealed()
    own, secret = archived.simulation.sites[1].identity.key, archived.secrets[1]
    assert open_archive(header, sealed, own=own, secret=secret) == b"safetensors"
    other, content = archived.sealed(b"another model")
    unsigned = replace(header, content_hash=bytes(32))
    for bad, data in ((header, content), (other, sealed), (unsigned, sealed)):
        with pytest.raises(UnreadableArchive):
            open_archive(bad, data, own=own, secret=secret)


def test_the_content_of_an_archive_is_the_one_that_was_sealed_with_it() -> None:
    """A receiver knows the key. It could exchange the content, but not the hash in the boxes."""
    archived = Archived()
    header, sealed = archived.sealed()
    own, secret = archived.simulation.sites[1].identity.key, archived.secrets[1]
    info = frame(Label.ARCHIVE_SEAL, header.session, header.run, header.model, header.identity, own)
    box = header.boxes[header.receivers.index(own)]
    key = unseal(box, private_key(secret), info)[:32]
    exchanged = AESGCM(key).encrypt(bytes(12), padded(b"crafted"), None)
    with pytest.raises(UnreadableArchive):
        open_archive(header, exchanged, own=own, secret=secret)
    assert open_archive(header, sealed, own=own, secret=secret) == b"safetensors"


def test_the_size_of_an_archive_does_not_follow_from_the_model() -> None:
    archived = Archived()
    assert len({len(archived.sealed(bytes(n))[1]) for n in (0, 1000, 2274, 2280, 2283)}) == 1


# -- what a verifier believes

ARTIFACT = signable(artifact())
NAMED = KnownMembers({key: name for name, key in ROSTER.items()}, "the roster")


def test_a_model_with_one_changed_byte_is_not_the_certified_one() -> None:
    certificate = certificate_of(ARTIFACT).encode()
    assert len(vouched_for(read_certificate(certificate, ARTIFACT), NAMED).vouching) == 5
    for at in (0, len(ARTIFACT.data) // 2, len(ARTIFACT.data) - 1):
        data = bytearray(ARTIFACT.data)
        data[at] ^= 1
        with pytest.raises(NotTheEndorsedModel):
            read_certificate(certificate, Artifact(ARTIFACT.model, bytes(data), ARTIFACT.card))


def test_a_card_that_members_have_not_signed_is_not_believed() -> None:
    certificate = certificate_of(ARTIFACT).encode()
    for change in ({"members": 50}, {"parent": "f" * 64}, {"salt": "0" * 64}):
        card = replace(ARTIFACT.card, **change)
        with pytest.raises(CardNotSigned):
            read_certificate(certificate, Artifact(ARTIFACT.model, ARTIFACT.data, card))


def test_a_certificate_with_forged_signatures_or_by_strangers_is_not_believed() -> None:
    whole = certificate_of(ARTIFACT)
    forged = replace(whole, signatures=(*whole.signatures[:-1], bytes(64)))
    with pytest.raises(ForgedEndorsement):
        read_certificate(forged.encode(), ARTIFACT)
    few = certificate_of(ARTIFACT, HOSPITALS[:3])
    with pytest.raises(TooFewEndorsements):
        read_certificate(few.encode(), ARTIFACT)
    strangers = [Identity.generate() for _ in range(5)]
    invented = read_certificate(certificate_of(ARTIFACT, strangers).encode(), ARTIFACT)
    with pytest.raises(ModelNotVouched):
        vouched_for(invented, NAMED)
