"""A hospital's table as its half of the algorithms sees it, and the digest that binds it."""

from collections.abc import Iterable
from dataclasses import dataclass

from client_sdk.tables import TableSummary, read_site, summarise
from kernels.rounds.program import Program
from kernels.rounds.site import Site


@dataclass(frozen=True)
class HospitalTable:
    """Rows in parts, 32 bytes that are others if any row is, and what the policy asks for."""

    site: Site
    digest: bytes
    summary: TableSummary


def site_of(
    program: Program, data: object, seed: int, *, consents: Iterable[str] = ()
) -> HospitalTable:
    """Check a table against the program's schema, all of it, and deal its rows."""
    site = read_site(data, program.schema, held_out=program.held_out, seed=seed, consents=consents)
    return HospitalTable(site, site.digest, summarise(site))
