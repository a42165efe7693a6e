"""The hospital's side of one session: its home, its table, its policy and its connection."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from client_sdk.events import EventWatch
from client_sdk.gate.policy import Policy
from client_sdk.home.home import OpenHome
from client_sdk.network.exchange import Exchange
from client_sdk.network.links import SessionLink
from client_sdk.tables.hospital_table import Changes


@dataclass(frozen=True)
class HospitalSide:
    """Everything that a conversation with one session needs from this hospital.

    data: the table, of any supported type. changes: rows that an update adds and removes.
    source: the table's name in the journal. roster: keys that are confirmed out of band.
    reviewed: whether a person has approved this session's policy at this home, and so has read in
        full what would leave (`session_approval.approve`).
    """

    home: OpenHome
    exchange: Exchange
    link: SessionLink
    policy: Policy
    watch: EventWatch
    data: object = None
    changes: Changes = field(default_factory=Changes)
    source: str = "table"
    roster: Mapping[str, bytes] = field(default_factory=dict)
    reviewed: bool = False

    @property
    def session(self) -> str:
        """The session's id."""
        return str(self.link.session)

    @property
    def today(self) -> date:
        """The current date, compared with the policy's expiry date."""
        return self.exchange.clock.now().date()
