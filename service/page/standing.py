"""Where a session stands and what an admin can do next, in one headline and a sentence.

    no run          hospitals are missing, wait for approval, or the session is ready
    open run        what is being done, and for whom it waits
    ended run       done, failed with its reason, or cancelled

What a person must do is said first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from service.http.access import APPROVED, PENDING
from service.page.plain_words import RUN_KINDS, stage_words
from service.runs.rows import RunRow
from service.sessions.members import MemberRow
from service.sessions.sessions import Session

_NEXT = {
    "done": "Start another run, for example to train again, or read the model.",
    "cancelled": "An admin has cancelled the run. Start it again when everyone is ready.",
    "failed": "Nothing was lost: the hospitals are still members. Correct what is said here, and "
    "start the run again.",
}


@dataclass(frozen=True)
class Standing:
    """look: good, bad, busy or idle. headline and sentence: for the admin."""

    look: str
    headline: str
    sentence: str


def standing(
    session: Session,
    members: Sequence[MemberRow],
    run: RunRow | None,
    waiting_for: Sequence[str],
) -> Standing:
    """Return where a session stands; run: its newest."""
    if run is None:
        return _before_runs(session, members)
    kind = RUN_KINDS.get(run.kind, run.kind)
    if run.is_open:
        if run.sums == 0:
            doing = f"{kind} waits for the hospitals"
        else:
            doing = f"{kind}: {_lower(stage_words(run.algorithm))}"
        waits = f"Waiting for {', '.join(sorted(waiting_for))}." if waiting_for else ""
        return Standing("busy", doing, waits)
    look = {"done": "good", "failed": "bad"}.get(run.status, "idle")
    headline = {"done": "is done", "failed": "has failed"}.get(run.status, "was cancelled")
    return Standing(look, f"{kind} {headline}", _NEXT.get(run.status, ""))


def _before_runs(session: Session, members: Sequence[MemberRow]) -> Standing:
    approved = sum(each.status == APPROVED for each in members)
    pending = [each.name for each in members if each.status == PENDING]
    least, planned = session.terms.min_cohort, session.planned_members
    if pending:
        names = ", ".join(pending)
        return Standing(
            "busy",
            f"{names} {'wait' if len(pending) > 1 else 'waits'} for your approval",
            "Compare the fingerprint with somebody at the hospital by phone, then approve it.",
        )
    if approved < least:
        return Standing(
            "idle",
            f"{approved} of {planned} hospitals are here",
            f"A run needs at least {least}. Invite each hospital with a link of its own.",
        )
    missing = planned - approved
    more = (
        f"{missing} of {planned} planned hospitals are not here yet; those that come later do not "
        "take part in a run that has started."
        if missing > 0
        else "All planned hospitals are here."
    )
    return Standing("good", "Ready to train", more)


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]
