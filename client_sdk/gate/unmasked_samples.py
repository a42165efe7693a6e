"""Samples of this hospital's own model: the only thing that leaves without a mask.

They leave only if the site's policy allows it (`open_ensemble = true`). They are drawn together
with the masked vector that they belong to, from the same broadcast, and stored. They are sent once
three things hold: that sum was certified (so all members had the same broadcast), the run has
produced a model, and the policy still allows it. After a withdrawal they are never sent.
"""

import hashlib
from datetime import date
from typing import Any

from client_sdk.error_origin import Origin, origins_of
from client_sdk.errors import ClientError, NotACoordinator
from client_sdk.events import EventWatch, UnmaskedSamplesLeft, UnmaskedSamplesNotTaken
from client_sdk.gate.policy import Policy
from client_sdk.gate.run_in_hand import RunInHand
from client_sdk.home.home import OpenHome
from client_sdk.home.remembered import UnmaskedSamples
from client_sdk.network.exchange import Effects, Exchange
from client_sdk.tables.hospital_table import HospitalTable
from kernels.errors import KernelsError
from kernels.rounds.ensemble.open_ensemble import open_stage, samples_of
from privacy.errors import PrivacyError


class _Withdrawn(Exception):
    """Samples were withdrawn while they were waiting to be sent."""


def drawn_samples(
    policy: Policy,
    table: HospitalTable,
    run: RunInHand,
    *,
    stage: int,
    state: Any,
    epoch: int,
    slot: int,
    today: date,
) -> UnmaskedSamples | None:
    """Draw the samples that a program requests at this stage, if the policy allows it.

    epoch, slot: those of the sum that the samples belong to.
    """
    allowed = policy.allows_unmasked_samples(run.program, today=today)
    if not allowed or stage != open_stage(run.program):
        return None
    found = samples_of(state, table.site)
    if found is None:
        return None
    body = found.to_bytes()
    return UnmaskedSamples(
        run=str(run.run),
        session=str(run.session),
        epoch=epoch,
        slot=slot,
        samples=len(found.samples),
        elements=found.samples.numel() + found.noise_variance.numel() + 1,
        octets=len(body),
        sha256=hashlib.sha256(body).hexdigest(),
        rows=table.journalled.hex(),
        body=body,
    )


def send_unmasked_samples(
    home: OpenHome, exchange: Exchange, policy: Policy, run: RunInHand, watch: EventWatch
) -> Effects[None]:
    """Send the samples that a run requested, once it has produced a model. They are NOT MASKED.

    The model exists whatever the coordinator or a proxy answers, so a refusal from either is not
    raised.
    """
    store, name = home.store, str(run.run)
    kept = store.samples_to_send(name)
    if kept is None or kept.body is None:
        return
    now = exchange.clock.now()
    allowed = policy.allows_unmasked_samples(run.program, today=now.date())
    if not (allowed and _is_certified(home, run, kept)):
        store.samples_not_needed(name)
        return

    def leaving() -> None:
        # Checked at each attempt: attempts go on for up to an hour, and a withdrawal may come.
        if not store.samples_leave(name, now.isoformat(timespec="seconds")):
            raise _Withdrawn

    target = f"/sessions/{run.session}/runs/{name}/samples"
    try:
        yield from exchange.put(target, kept.body, before=leaving)
    except _Withdrawn:
        return
    except (ClientError, KernelsError, PrivacyError) as error:
        # A proxy that blocks this body answers itself, without being the coordinator.
        if not (Origin.COORDINATOR in origins_of(error) or isinstance(error, NotACoordinator)):
            raise
        store.samples_taken(name, refused=error.code)
        watch(UnmaskedSamplesNotTaken(error.code))
        return
    store.samples_taken(name)
    watch(UnmaskedSamplesLeft(kept.samples, kept.elements, kept.octets, kept.sha256))


def _is_certified(home: OpenHome, run: RunInHand, kept: UnmaskedSamples) -> bool:
    """Return whether a quorum has signed the sum that the samples belong to, and its broadcast.

    Otherwise a coordinator could send a forged state to this hospital alone, end the run, and get a
    model of this hospital's rows that no other member has agreed to.
    """
    name = run.session.bytes, run.run.bytes, kept.epoch
    entry = home.client.journal.epochs.get(name)
    slot = None if entry is None else entry.slots.get(kept.slot)
    return slot is not None and slot.certified is not None
