"""Decisions of a named person, about a data source or a session's address; nothing is sent."""

import os
from datetime import UTC, datetime

from client_sdk.errors import PolicyFileError, SessionError
from client_sdk.home.home import Home
from client_sdk.home.policies import Policies
from client_sdk.network.links import SessionLink
from client_sdk.tables.hospital_table import site_of
from kernels.rounds.program import Program
from privacy.securesum.steady import check_approved_by


def approve_table(
    session: str,
    data: object,
    *,
    by: str,
    home: str | os.PathLike[str] | None = None,
    source: str = "table",
    allow_http: bool = False,
) -> None:
    """Approve a data source's table as it is now; nothing is sent.

    Two exact sums over tables that differ by one patient reveal that patient: the person named in
    `by` takes responsibility for that. The table is read as the session's program reads it.
    """
    link = SessionLink.parse(session, allow_http=allow_http)
    with Home(home).open() as opened:
        known = opened.store.session(str(link.session))
        if known is None or not known.member:
            raise SessionError("this hospital has not joined this session: join it first")
        table = site_of(Program.from_json(known.program), data, opened.dealing)
        opened.keep(opened.client.approve_table(source, table.digest, approved_by=by))


def approve_address(
    session: str,
    *,
    by: str,
    home: str | os.PathLike[str] | None = None,
    allow_http: bool = False,
) -> bool:
    """Accept that a session is at the address of this link, and return whether it was forgotten.

    A session that was moved has a new address; so has one that somebody pretends to. The person
    named in `by` has asked the coordinator's operator, by a channel of their own. If this hospital
    has entered none of its runs, what it saw at the other address is forgotten with the policy's
    approval: it reviews the session again, and enrols. Otherwise it goes on with the program and
    the terms that it knows.
    """
    check_approved_by(by)
    link, place = SessionLink.parse(session, allow_http=allow_http), Home(home)
    name, at = str(link.session), datetime.now(UTC).isoformat(timespec="seconds")
    with place.open() as opened:
        if opened.store.address(name) is None:
            raise SessionError(
                "this hospital does not know this session, so it needs no approval of its address: "
                "review it with `veilgp policy draft LINK TABLE`"
            )
        if opened.store.last_run(name) is None:
            Policies(place).forget_approval(name)
        return opened.store.keep_address(name, link.address, by=by, at=at)


def choose_row_band(
    rows: int,
    *,
    by: str,
    home: str | os.PathLike[str] | None = None,
    source: str = "table",
) -> None:
    """Choose the row band of a data source (`gate.row_band`), or another one than before.

    Answers will take longer, or less long, than they did, which the coordinator can see: the person
    named in `by` takes responsibility for that.
    """
    check_approved_by(by)
    if type(rows) is not int or rows < 1 or rows & (rows - 1):
        raise PolicyFileError(f"a row band must be a power of two, not {rows!r:.60}")
    with Home(home).open() as opened:
        opened.store.keep_row_band(source, rows, by=by)
