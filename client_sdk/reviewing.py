"""What a person reviews before a hospital takes part: a drafted policy, and what the table lacks.

Nothing here enrols anyone. The table is read at home, and what is said about it is shown at home.
"""

import os
from dataclasses import dataclass
from datetime import UTC, datetime

from client_sdk.errors import ClientError
from client_sdk.gate.dictionary_draft import draft_dictionary
from client_sdk.gate.policy import Policy
from client_sdk.gate.policy_draft import draft
from client_sdk.gate.row_band import ProposedBand, proposed
from client_sdk.gate.table_check import Problem, TableCheck
from client_sdk.home.home import Home
from client_sdk.home.policies import Policies, TableSeen
from client_sdk.tables.hospital_table import HospitalTable, site_of
from client_sdk.tables.schema_stream import count_rows
from kernels.errors import KernelsError
from kernels.rounds.program import Program
from kernels.rounds.site.dealing import Dealing
from privacy.securesum.terms import Terms

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Review:
    """A session as this hospital's table and policy see it.

    policy, text: as given, or as drafted; text is empty if it was given.
    problems: everything for which this hospital would not take part. rows: of the table, if it
    could be read: those that take part. without_target: those that are left out because a target is
    missing. dealt: whether its rows were dealt by the home's secret, as in a run; otherwise
    by one that was made up, so that numbers of rows in a part are about right only.
    """

    policy: Policy
    text: str
    problems: tuple[Problem, ...]
    rows: int | None
    dealt: bool
    without_target: int = 0


def review(
    program: Program,
    terms: Terms,
    data: object,
    *,
    delta: float | None = None,
    stated: str | None = None,
    policy: Policy | None = None,
    home: PathLike | None = None,
    source: str = "table",
) -> Review:
    """Read a table as a session's program does, and apply the policy; nothing is sent or kept.

    stated: the program as it was received, which the policy must approve; None if there is no
        session yet. policy: by default the one that would be drafted.
    """
    place = Home(home)
    store = place.read() if place.exists() else None
    try:
        text = ""
        if policy is None:
            band = (
                ProposedBand.for_table(count_rows(data))
                if store is None
                else proposed(store, source, data)
            )
            dictionary = draft_dictionary(program.schema, data)
            text = draft(program, terms, delta=delta, dictionary=dictionary.to_toml(), band=band)
            policy = Policy.from_toml(text)
        try:
            table = _read(program, data, place if store is not None else None)
        except (ClientError, KernelsError) as error:
            return Review(policy, text, (error,), None, dealt=False)
        check = TableCheck(
            policy,
            program,
            terms,
            table,
            datetime.now(UTC).date(),
            text=stated,
            store=store,
            source=source,
        )
        problems = tuple(check.problems())
        return Review(
            policy,
            text,
            problems,
            table.summary.rows,
            dealt=store is not None,
            without_target=table.without_target,
        )
    finally:
        if store is not None:
            store.close()


def noted(found: Review, table: object, *, session: str, home: PathLike | None) -> None:
    """Keep what was found in a table for whoever approves the policy; it stays in the home."""
    if found.rows is not None:
        at = datetime.now(UTC).isoformat(timespec="minutes")
        seen = TableSeen(found.rows, found.without_target, str(table), at)
        Policies(Home(home)).note_table(session, seen)


def _read(program: Program, data: object, home: Home | None) -> HospitalTable:
    return site_of(program, data, Dealing.generate() if home is None else home.dealing())
