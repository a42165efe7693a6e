"""The end of a run: the finished model, signed by this hospital, handed over, and fetched.

Every member signs the model that its own replay leads to. The signatures of a quorum are its
certificate. With blind sums the coordinator does not have the model: a member hands over its bytes
(`served`), or an archive that only members can open (`members`), with the certificate, the card and
the bytes inside.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from client_sdk.conversation.answers import Item
from client_sdk.conversation.hospital_side import HospitalSide
from client_sdk.conversation.replay import check_model
from client_sdk.conversation.rosters import confirmed_by
from client_sdk.errors import ModelNotCertified, WrongRun
from client_sdk.gate.refusal_report import about_totals
from client_sdk.gate.run_in_hand import RunInHand
from client_sdk.home.remembered import Holding
from client_sdk.network.exchange import MAX_ARTIFACT, MAX_STATE, Effects
from kernels.model.artifact import Artifact, published
from kernels.model.card import NO_SALT as UNSIGNED
from kernels.model.card_sections import Privacy
from kernels.model.results import released
from kernels.storage import encode
from privacy.errors import PrivacyError
from privacy.frames import Frame, Limits, pieces
from privacy.members.archive import archive_bytes, open_archive, read_archive
from privacy.members.endorsement import LEAST_COLLUDERS, Endorsement, ModelCertificate
from privacy.securesum.errors import NotTheEndorsedModel
from privacy.securesum.messages import Adverts, Certificate
from privacy.securesum.records import Step
from privacy.securesum.terms import Terms

_CONTENT = Limits(
    head=1 << 16, parts={"certificate": 4 << 20, "card": 32 << 20, "model": MAX_ARTIFACT}
)
"""The parts of an archive's content."""


@dataclass(frozen=True)
class FetchedModel:
    """A model as the coordinator, or an archive, has it: nothing in it is trusted."""

    id: str
    artifact: bytes = field(repr=False)
    card: Mapping[str, Any] = field(repr=False)
    certificate: ModelCertificate | None

    def read(self) -> Artifact:
        """Return the model; refuse bytes or a card that do not have its id."""
        return Artifact.from_bytes(self.artifact, dict(self.card), expected_id=self.id)


@dataclass(frozen=True)
class Finishing:
    """A hospital at the end of a run."""

    side: HospitalSide
    terms: Terms
    run: RunInHand

    def endorsed(self, item: Item, holding: Holding) -> Effects[Step[Endorsement]]:
        """Return this hospital's signature on the model that its replay has led to.

        With open sums the coordinator's model is signed, if it differs by rounding only. With blind
        sums it has none, and a digest that it sends is not looked at: whether a hospital then asks
        for the model would tell if a guess was right.
        """
        last = self._last(item, holding)
        position = holding.newest
        with about_totals(hidden=self.terms.blind):
            data = encode(published(position.state.model))
            results = released(published(position.state.model))
        wanted = None if self.terms.blind else item.plain.get("model_digest")
        if wanted is not None and wanted != hashlib.sha256(data).hexdigest():
            data = yield from self.side.exchange.get_current(
                f"/sessions/{self.side.session}/runs/{self.run.run}/model",
                limit=MAX_STATE,
                timeout_s=600.0,
            )
            position = check_model(holding, data)
            results = released(published(position.state.model))
        return self.side.home.client.endorse(
            last,
            program=hashlib.sha256(self.run.text.encode()).digest(),
            parent=self.run.parent,
            data=data,
            state=position.digest,
            results=results,
        )

    def handed_over(self, item: Item, holding: Holding) -> tuple[str, tuple[bytes, ...]] | None:
        """Return the query and the body that hand the endorsed model over.

        None if a quorum has endorsed another model than this hospital's own, which may differ by
        rounding: then others have it. Without a quorum nothing is handed over.
        """
        certificate = ModelCertificate.decode(item.message)
        said = certificate.statement
        name = self.run.session.bytes, self.run.run.bytes
        if (said.session, said.run) != name:
            raise WrongRun("the certificate is about the model of another run")
        _, epoch = self.side.home.client.journal.entry(said.epoch_id)
        if (said.members, said.max_colluders) != (epoch.size, epoch.terms.max_colluders):
            raise WrongRun("the certificate is about another number of members than the run has")
        certificate.vouched_by(epoch.members, max_colluders=epoch.terms.max_colluders)
        certificate = self.with_own_salt(certificate)
        try:
            certificate.check_covers(encode(published(holding.newest.state.model)))
        except NotTheEndorsedModel:
            return None
        artifact = self.own_artifact(holding, certificate)
        if not self.terms.members_only:
            return "", (artifact.data,)
        parts = {
            "certificate": certificate.encode(),
            "card": artifact.card.to_json().encode(),
            "model": artifact.data,
        }
        header, sealed = self.side.home.client.seal_archive(
            Adverts.decode(item.part("adverts") or b""),
            item.roster,
            model=said.model,
            content=b"".join(bytes(piece) for piece in pieces({}, parts)),
        )
        return f"&model={artifact.id}", (archive_bytes(header, sealed),)

    def with_own_salt(self, certificate: ModelCertificate) -> ModelCertificate:
        """Return a certificate with the salt that members derive; it needs the group key."""
        said = certificate.statement
        salt = self.side.home.client.model_salt(said.epoch_id, said.context)
        return certificate.with_salt(salt)

    def own_model(self, holding: Holding, certificate: ModelCertificate | None) -> FetchedModel:
        """Return this hospital's own model, with the certificate if it is about this very model."""
        for signed in (certificate, None):
            artifact = self.own_artifact(holding, signed)
            plain = artifact.card.to_plain()
            own = FetchedModel(artifact.id, artifact.data, plain, signed)
            try:
                if signed is not None:
                    check_certified(self.side, self.terms, own)
            except PrivacyError:
                continue
            break
        return own

    def own_artifact(self, holding: Holding, certificate: ModelCertificate | None) -> Artifact:
        """Return the artifact of the model that this hospital has computed itself.

        certificate: with its salt, if members have signed this very model.
        """
        with about_totals(hidden=self.terms.blind):
            return Artifact.of(
                holding.newest.state.model,
                program=self.run.program,
                members=self._members,
                sums=holding.newest.sum_index,
                privacy=Privacy.of(
                    self.run.program.schema,
                    min_cohort=self.terms.min_cohort,
                    max_colluders=self.terms.max_colluders,
                    blind=self.terms.blind,
                    members_only=self.terms.members_only,
                ),
                created=self.side.exchange.clock.now(),
                parent=self.run.parent,
                salt=UNSIGNED if certificate is None else certificate.salt.hex(),
            )

    @property
    def _members(self) -> int:
        """The number of members in the run's newest epoch."""
        name = self.run.session.bytes, self.run.run.bytes
        journal = self.side.home.client.journal
        epochs = [each for each in journal.agreed.values() if each.name[:2] == name]
        newest = max(epochs, key=lambda each: each.name[2])
        return 0 if newest.epoch is None else newest.epoch.size

    def _last(self, item: Item, holding: Holding) -> Certificate:
        """Return the certificate of the run's last sum; refuse that of any other sum.

        Under another run's sum the model would be signed as the model of that run, and its
        commitment published with that run's salt.
        """
        last = Certificate.decode(item.part("last_certificate") or b"")
        entry, _ = self.side.home.client.journal.entry(last.epoch_id)
        run = self.run.session.bytes, self.run.run.bytes
        if entry.name[:2] != run or (entry.name[2], last.slot) != holding.made_by:
            raise WrongRun("the model is to be signed under another sum than the last of its run")
        return last


def fetched_model(side: HospitalSide, terms: Terms, model: str) -> Effects[FetchedModel]:
    """Download a model: from the coordinator, or from the archive that only members can open."""
    exchange = side.exchange
    if terms.members_only:
        data = yield from exchange.get(
            f"/models/{model}/archive", limit=MAX_ARTIFACT, timeout_s=600.0
        )
        header, sealed = read_archive(data)
        own, secret = side.home.identity.key, side.home.archive_secret
        content = Frame.read(open_archive(header, sealed, own=own, secret=secret), _CONTENT)
        card, artifact = content.bytes("card") or b"", content.bytes("model") or b""
        certificate = ModelCertificate.decode(content.bytes("certificate") or b"")
        return FetchedModel(model, artifact, _plain(card), certificate)
    plain = yield from exchange.get_json(f"/models/{model}")
    artifact = yield from exchange.get(
        f"/models/{model}/artifact", limit=MAX_ARTIFACT, timeout_s=600.0
    )
    try:
        data = yield from exchange.get(f"/models/{model}/certificate")
    except ModelNotCertified:
        return FetchedModel(model, artifact, plain, None)
    return FetchedModel(model, artifact, plain, ModelCertificate.decode(data))


def check_certified(
    side: HospitalSide, terms: Terms, model: FetchedModel, *, starts: bool = False
) -> tuple[bytes, ...]:
    """Return who vouches for a model; refuse one whose certificate does not cover it.

    Only members count whose keys are confirmed here, this hospital's own among them. With
    `trust_first_use` those that were only met count, too, but not if a run `starts` from the model:
    whoever invents members would choose the state at which this hospital evaluates its rows. Two
    must vouch at least, also in a session that tolerates no colluder: this hospital may be one.
    """
    if model.certificate is None:
        raise ModelNotCertified(
            f"no member has signed the model {model.id}: list it under `parents` in the policy to "
            "start from it all the same, or train it again"
        )
    model.certificate.check_covers(model.artifact)
    pins = side.home.store.pins(side.session, trust_first_use=side.policy.trust_first_use)
    pins = confirmed_by(pins, side.roster)
    pinned = {side.home.identity.key, *pins.confirmed.values()}
    if pins.trust_first_use and not starts:
        pinned |= set(pins.met.values())
    own = max(LEAST_COLLUDERS, terms.max_colluders)
    return model.certificate.vouched_by(pinned, max_colluders=own)


def _plain(text: bytes) -> Mapping[str, Any]:
    try:
        plain = json.loads(text)
    except ValueError:
        return {}
    return plain if isinstance(plain, dict) else {}
