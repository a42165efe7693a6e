"""What every member finds in a blind total ends the run, and names nobody; a refusal does."""

from dataclasses import replace

import pytest

from kernels.rounds import position as positions
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.terms import Terms
from service.runs.machine.run import Run
from tests.service.programs import TINY
from tests.service.runs import test_attendance as private

BLIND = Terms(private.SESSION.bytes, 1, 3, differential_privacy=False, blind=True)


def ended_by(code: str) -> tuple[str, str]:
    """Return the code and the detail of a run that site-1 has refused."""
    plan = replace(private.opened(0).plan, program=TINY, text=TINY.to_json())
    epoch = Coordinator(BLIND, run=bytes(16), number=0, roster=private.ROSTER)
    run = Run(plan, epoch, positions.start(TINY, None), stage=0, sums=0, since=0.0, ledger=None)
    run.refused_by(private.IDENTITIES[1].key, code, "in a word")
    assert run.ending is not None
    return run.ending.code, run.ending.detail


@pytest.mark.parametrize(
    ("reported", "ends"),
    [
        ("total.site_failed", "run.site_failed"),
        ("total.not_verified", "total.not_verified"),
        ("total.no_update", "total.no_update"),
    ],
)
def test_what_all_members_find_names_nobody(reported: str, ends: str) -> None:
    assert ended_by(reported) == (ends, "in a word")


def test_a_refusal_names_its_member_and_its_reason() -> None:
    assert ended_by("policy.sums") == (
        "run.member_refused",
        "site-1 refused (policy.sums): in a word",
    )
