"""A simulation of a session in one process: a whole program over a list of tables, no network.

`secure=True` runs the real secure sum, with real clients and a real coordinator that exchange
bytes. `secure=False` adds the same encoded integers without masks. Both give exactly the same
numbers as a session, to the last bit, because the masks cancel in the sum.

The sums of a private program have the noise of a session, one share from every site. It is drawn
as at a hospital, unless another source is given.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_sdk.home.home import Home
from client_sdk.tables.hospital_table import site_of
from kernels.errors import DealingMissing, EmptyTable
from kernels.model.model import Model
from kernels.rounds import position as positions
from kernels.rounds.algorithm import Rehearsed, rehearsed
from kernels.rounds.broadcast import received
from kernels.rounds.plan import check_fits
from kernels.rounds.program import Program
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.site import Site
from kernels.rounds.task import noise_multiplier
from kernels.tables.problems import RowByRow
from privacy import noise
from privacy.encoding import Encoding
from privacy.layout import SecureTotal
from privacy.securesum.errors import KeysMissing
from privacy.securesum.simulator import Fault, Point, Simulation
from privacy.securesum.terms import LEAST_COHORT, default_terms

Table = Mapping[str, object]
SumWatch = Callable[[str, Any], None]
Vector = NDArray[np.uint64] | None
"""What a site would send; None from a site that drops out."""

NOBODY: Mapping[int, Collection[int]] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Simulated:
    """The model, the state at the end of each stage, and the counts of sums and numbers."""

    model: Model
    states: tuple[Any, ...]
    sums: int
    released: int


def simulate(
    program: Program,
    tables: Iterable[Table | Site],
    dealing: Dealing | None = None,
    *,
    secure: bool = True,
    model: Model | None = None,
    watch: SumWatch | None = None,
    honest: int | None = None,
    dropouts: Mapping[int, Collection[int]] = NOBODY,
    source: noise.Source = noise.exact,
) -> Simulated:
    """Run a program over one table per site, and return what the coordinator would have.

    dealing: deals the rows of every table to training, stopping and calibration, alike however
        they are divided among tables; a `Site` is dealt already. In a session each site has its
        own, in its home: pass its `site_of_home` to get the session's numbers.
    model: the model that the first stage starts from, if the program continues an earlier one.
    watch: called with the algorithm's name and its state after every sum.

    For a private program:
    dropouts: for each sum (counted from 0 over the run), the sites (counted from 0) missing in it.
    honest: the number of sites whose noise must be sufficient; by default the smallest number of
        sites in any sum. Use fewer if some may collude.
    source: the source of the noise.
    """
    sites = [
        table if isinstance(table, Site) else _dealt(program, table, dealing) for table in tables
    ]
    if not sites:
        raise EmptyTable("tables is empty: pass one table per site")
    for site in sites:
        check_fits(program, {part: site.count(part) for part in site.parts})
    private = program.privacy is not None
    simulation = _opened(len(sites), private=private) if secure else None
    left = len(sites) - max(map(len, dropouts.values()), default=0)
    position, states, released = positions.begin(program, model), [], 0
    while True:
        algorithm, state = position.algorithm, position.state
        if position.stage_finished:
            states.append(state)
            if position.finished:
                return Simulated(state.model, tuple(states), position.sum_index, released)
            position = positions.next_stage(position)
            continue
        # Sites use the state as it is stored, and nothing else.
        ready = rehearsed(algorithm, received(position.encoded, program, position.stage))
        encoding = Encoding.of_sum(
            algorithm.layout(state),
            multiplier=noise_multiplier(program, position.stage),
            honest=honest or left,
            members=len(sites),
        )
        silent = dropouts.get(position.sum_index, ())
        vectors = (
            None if i in silent else _sent(encoding, ready, site, source)
            for i, site in enumerate(sites)
        )
        if simulation is None:
            total = _added(encoding, vectors)
        else:
            total = _summed(simulation, encoding, list(vectors), algorithm.NAME, position.digest)
        position = positions.updated(position, total)
        released += encoding.layout.length
        if watch is not None:
            watch(algorithm.NAME, position.state)


def site_of_home(program: Program, data: object, home: str | os.PathLike[str]) -> Site:
    """Return a hospital's table, dealt by the secret in its home as in a session."""
    return site_of(program, data, Home(home).dealing()).site


def _dealt(program: Program, table: Table, dealing: Dealing | None) -> Site:
    if dealing is None:
        raise DealingMissing(
            "a table is simulated only with the secret that deals its rows to parts: pass "
            "dealing=Dealing.generate(), or sites that are dealt already"
        )
    return Site.of_table(
        program.schema,
        table,
        held_out=program.held_out,
        dealing=dealing,
        row_by_row=None if program.privacy is None else RowByRow(),
    )


def _sent(
    encoding: Encoding, ready: Rehearsed, site: Site, source: noise.Source
) -> NDArray[np.uint64]:
    """Return what a site sends; its noise is drawn before its rows are read."""
    if not encoding.share_deviations:
        return encoding.encode(ready.contributed(site))
    drawn = noise.draw(encoding, source=source)
    return encoding.encode(ready.contributed(site), noise=drawn.once())


def _added(encoding: Encoding, vectors: Iterable[Vector]) -> SecureTotal:
    total = np.zeros(encoding.layout.length, dtype="<u8")
    contributors = 0
    for vector in vectors:
        if vector is not None:
            total += vector
            contributors += 1
    return encoding.decode(total, contributors=contributors)


def _summed(
    simulation: Simulation,
    encoding: Encoding,
    vectors: Sequence[Vector],
    statistic: str,
    state: bytes,
) -> SecureTotal:
    for site, vector in enumerate(vectors):
        if vector is None:
            simulation.faults[site, Point.UPLOAD] = Fault.LATE
    nothing = np.zeros(encoding.layout.length, dtype="<u8")
    outcome = simulation.sum(
        [nothing if vector is None else vector for vector in vectors],
        statistic=statistic,
        encoding=encoding,
        state=state,
    )
    if outcome.total is None:
        raise KeysMissing("The sum did not complete.", ranks=())
    return simulation.coordinator.slot.total(encoding)


def _opened(sites: int, *, private: bool) -> Simulation:
    terms = default_terms(bytes(16), sites, differential_privacy=private)
    if private:  # any quorum is sufficient: noise covers the difference made by a dropout
        terms = replace(terms, min_cohort=max(LEAST_COHORT, terms.max_colluders + 2))
    simulation = Simulation(sites, terms=terms)
    simulation.open_epoch()
    return simulation
