"""A member's next item, derived from what it has not answered yet; there is no cursor.

A member that has lost a response, or its record of having answered, simply repeats the request.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from privacy.members.endorsement import ModelCertificate
from privacy.securesum.item_kinds import ItemKind
from privacy.securesum.messages import Witnesses
from privacy.securesum.summation import Summation
from privacy.securesum.wire import Message
from service.runs.machine.closed_sum import ClosedSum
from service.runs.machine.state import RunState

MOST_WITH_AN_ITEM = 1 << 20
"""Most bytes of a total that is sent with an item, which saves each member a request."""


@dataclass(frozen=True)
class Item:
    """One item for a member, with its protocol message; `more` fields and `parts` of bytes."""

    kind: ItemKind
    message: Message
    more: Mapping[str, object] = field(default_factory=dict)
    parts: Mapping[str, bytes] = field(default_factory=dict)


def item_for(
    run: RunState, key: bytes, *, witnesses: bool = False, objected: bool = False
) -> Item | None:
    """Return the item that an open run has for a member, if any.

    witnesses: the member could not replay the current sum's state. Its task waits until enough
        others have answered it, and then comes with their signed headers.
    objected: the member does not hold the state of a blind task. Its task waits until the author
        has sealed that state.
    """
    if run.ending is not None or key not in run.attendance.expected(run.epoch):
        return None
    epoch = run.epoch.epoch
    if epoch is None:
        return None if key in run.epoch.advertised else _opening(run)
    if key not in epoch.members:
        return None
    rank = epoch.rank(key)
    if run.epoch.missing_boxes:
        return _adverts(run) if rank in run.epoch.missing_boxes else None
    if run.is_endorsing:
        return _endorse(run, rank)
    if run.awaits_author or run.awaits_model:
        return _asked(run, rank)
    slot = run.slot
    if slot is None or run.work_due:
        return None
    unsealed = run.authoring.sealed is None and rank not in slot.task.authors
    if objected and unsealed and slot.proposal is None and not slot.abandoning:
        return None
    return _of_slot(run, slot, rank, witnesses=witnesses)


def _endorse(run: RunState, rank: int) -> Item | None:
    """Return the request to endorse the finished model, to members that were in the last sum."""
    answered = rank in run.endorsements.by_rank or rank in run.authoring.drafts
    if answered or rank not in run.endorsers:
        return None
    digest = None if run.is_blind else hashlib.sha256(run.section).hexdigest()
    return _between(run, ItemKind.ENDORSE, rank, {"model_digest": digest})


def _asked(run: RunState, rank: int) -> Item | None:
    """Return the request for the next task of blind sums, or for the model."""
    if rank not in run.asked:
        return None
    if run.verdict:
        adverts = run.epoch.close_adverts().encode()
        certificate = ModelCertificate.decode(run.verdict)
        return Item(ItemKind.HANDOVER, certificate, _roster(run), {"adverts": adverts})
    return _between(run, ItemKind.AUTHOR, rank, {})


def _between(run: RunState, kind: ItemKind, rank: int, more: Mapping[str, object]) -> Item:
    parts = dict(about_last(run.last))
    if run.epoch.holds_boxes_for(rank):
        parts["delivery"] = run.epoch.delivery(rank).encode()
    return Item(kind, run.epoch.author_request(), more, parts)


def _of_slot(run: RunState, slot: Summation, rank: int, *, witnesses: bool) -> Item | None:
    proof, proposal, certificate = slot.abandon_proof, slot.proposal, slot.certificate
    if proof is not None:
        return Item(ItemKind.ABANDONED, proof)
    if slot.abandoning:
        asked = rank not in slot.abandoned_by
        return Item(ItemKind.ABANDON, slot.abandon_request()) if asked else None
    if proposal is None:
        said = run.authoring
        if said.wanted and said.sealed is None and rank in slot.task.authors:
            return Item(ItemKind.SEAL, slot.task)
        if rank not in slot.dropped or rank in said.rejected:
            return None
        if witnesses and not run.has_witnesses(slot):
            return None
        return _task(run, slot, rank, witnesses=witnesses)
    if rank not in proposal.survivors:
        return None
    if certificate is None:
        return None if rank in slot.certified_by else Item(ItemKind.PROPOSAL, proposal)
    if rank in slot.silent:
        return Item(ItemKind.CERTIFICATE, certificate)
    if run.repairing and not slot.has_repaired(rank):
        return Item(ItemKind.REPAIR, slot.repair_request(rank))
    return None


def _opening(run: RunState) -> Item:
    plan = run.plan
    more = {"program": plan.text, "run_kind": plan.kind, "parent": plan.base_model}
    return Item(ItemKind.OPENING, run.epoch.opening(), more)


def _adverts(run: RunState) -> Item:
    return Item(ItemKind.ADVERTS, run.epoch.close_adverts(), _roster(run))


def _roster(run: RunState) -> Mapping[str, object]:
    members = run.roster.members
    return {"roster": [{"name": member.name, "key": member.key.hex()} for member in members]}


def _task(run: RunState, slot: Summation, rank: int, *, witnesses: bool) -> Item:
    parts = dict(about_last(run.last))
    if run.epoch.holds_boxes_for(rank):
        parts["delivery"] = run.epoch.delivery(rank).encode()
    if witnesses:
        enough = slot.headers[: run.epoch.terms.max_colluders + 1]
        parts["witnesses"] = Witnesses(enough).encode()
    sealed = run.authoring.sealed
    if sealed is not None and rank in run.authoring.wanted:
        header, box = sealed
        parts |= {"sealed_state": header.encode(), "state_box": box}
    return Item(ItemKind.TASK, slot.task, parts=parts)


def about_last(last: ClosedSum | None) -> Mapping[str, bytes]:
    """Return an item's parts about the newest closed sum, if any; a long total is downloaded."""
    if last is None:
        return {}
    parts = {
        "last_task": last.task,
        "last_certificate": last.certificate,
        "total": last.total,
    }
    return parts if len(last.body) > MOST_WITH_AN_ITEM else {**parts, "total_body": last.body}
