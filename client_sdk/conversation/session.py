"""The hospital's part of a session, as a conversation without network I/O (`exchange.Effects`).

    the offer, read and checked (`offer`) → join its terms → runs (`participation`) → the model

After a crash the hospital starts here again, and its journal gives the same answers as before. A
refusal is reported to the coordinator as a code and a sentence without data, and then raised. What
depends on this hospital's own rows is never reported: to the others the hospital is absent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from client_sdk.conversation.entry import try_before_entry
from client_sdk.conversation.finishing import FetchedModel, check_certified, fetched_model
from client_sdk.conversation.hospital_side import HospitalSide
from client_sdk.conversation.offer import OfferReview
from client_sdk.conversation.participation import Participation
from client_sdk.error_origin import origins_of
from client_sdk.errors import (
    ClientError,
    ModelDiffers,
    NoModel,
    RefusedByCoordinator,
    RunFailed,
)
from client_sdk.events import RefusalReported
from client_sdk.gate.refusal_report import REPORTABLE, Reportable, public_code, public_detail
from client_sdk.home.remembered import KnownRun
from client_sdk.network.exchange import Effects
from kernels.errors import KernelsError
from kernels.rounds.site.site import Site
from privacy.errors import PrivacyError
from privacy.securesum.terms import Terms


@dataclass(frozen=True)
class Finished:
    """A run that produced a model: the model's id, bytes and card, and who vouches for it.

    certificate: encoded, if members have signed the model. site: this hospital's own rows.
    """

    run: str
    model: str
    artifact: bytes
    card: Mapping[str, Any]
    certificate: bytes | None
    site: Site = field(repr=False)


def take_part(
    side: HospitalSide, *, once: bool, finished: Callable[[Finished], None]
) -> Effects[Finished]:
    """Take part in one run of the session and return its model, or in all later runs."""
    part: Participation | None = None
    try:
        review = OfferReview(side)
        offer = yield from review.read()
        table = review.checked(offer)
        yield from try_before_entry(side, offer.program, table)
        yield from review.approved(offer.membership)
        side.home.keep(side.home.client.join(offer.terms))
        part = Participation(side, offer, table)
        while True:
            over = yield from part.one_run(once=once)
            if over.model is not None:
                fetched = yield from _fetched(side, offer.terms, part, over, over.model)
                over = part.check_model(over, fetched.artifact, fetched.card)
                done = Finished(
                    over.run,
                    fetched.id,
                    fetched.artifact,
                    fetched.card,
                    None if fetched.certificate is None else fetched.certificate.encode(),
                    table.site,
                )
                yield from part.send_unmasked_samples(over)
                finished(done)
                part.fetched(over)
                if once:
                    return done
            elif once:
                raise _why_no_model(over)
    except REPORTABLE as error:
        if not origins_of(error):
            yield from _report(side, part, error)
        raise


def _fetched(
    side: HospitalSide, terms: Terms, part: Participation, run: KnownRun, model: str
) -> Effects[FetchedModel]:
    """Download a run's model, and check who has signed it.

    An archive is the word of one member: if it is unusable, this hospital returns its own model.
    """
    try:
        fetched = yield from fetched_model(side, terms, model)
        if fetched.certificate is not None:
            check_certified(side, terms, fetched)
        if terms.members_only:
            fetched.read()
            part.check_same(run, fetched.artifact)
    except (PrivacyError, KernelsError, ModelDiffers, RefusedByCoordinator) as error:
        own = part.own_model(run, str(error)) if terms.members_only else None
        if own is None:
            raise
        return own
    return fetched


def _report(side: HospitalSide, part: Participation | None, error: Reportable) -> Effects[None]:
    """Report this hospital's refusal to the coordinator, by its code and without data."""
    code, run = public_code(error), None if part is None else part.at_run
    body = {"run": run, "code": code, "detail": public_detail(error)}
    try:
        yield from side.exchange.post(f"/sessions/{side.session}/refusals", body, once=True)
    except (ClientError, KernelsError, PrivacyError):
        side.watch(RefusalReported(code, heard=False))
        return
    side.watch(RefusalReported(code, heard=True))
    if part is not None:
        part.give_up(code)


def _why_no_model(run: KnownRun) -> ClientError:
    if run.status == "done":
        return NoModel(
            "the run is done but produced no model: ask the session's admin about its purpose"
        )
    return RunFailed(run.status, run.code or "unknown", run.detail or "no reason was given")
