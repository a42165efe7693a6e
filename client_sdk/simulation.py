"""A simulation of a session in one process: a whole program over a list of tables, no network.

    model = simulate(schema, [north, south, west])      what `join` would return, and more
    model.predict(rows).intervals(0.9)

`secure=True` runs the real secure sum, with real clients and a real coordinator that exchange
bytes. `secure=False` adds the same encoded integers without masks. Both give exactly the same
numbers as a session, to the last bit, because the masks cancel in the sum.

The sums of a private program have the noise of a session, one share from every site. It is drawn
as at a hospital, unless another source is given.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_sdk.home.home import Home
from client_sdk.model.model import GlobalModel
from client_sdk.tables.hospital_table import site_of
from client_sdk.tables.reading import read_site
from client_sdk.tables.schema_of import schema_of
from kernels.errors import EmptyTable, ProgramError
from kernels.model.artifact import Artifact
from kernels.model.card_sections import Privacy
from kernels.model.model import Model
from kernels.rounds import position as positions
from kernels.rounds.algorithm import Rehearsed, rehearsed
from kernels.rounds.automatic import automatic_program
from kernels.rounds.broadcast import checked
from kernels.rounds.noise_planning import with_noise
from kernels.rounds.plan import check_fits, release_plan
from kernels.rounds.program import Program
from kernels.rounds.released_scores import released_scores
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.site import Site
from kernels.rounds.task import noise_multiplier
from kernels.tables.problems import RowByRow
from kernels.tables.schema import Schema
from privacy import noise
from privacy.accounting.cost import cost
from privacy.accounting.events import MECHANISM
from privacy.accounting.promises import planned_noise, promised
from privacy.encoding import Encoding
from privacy.layout import SecureTotal
from privacy.securesum.errors import KeysMissing
from privacy.securesum.simulator import Fault, Point, Simulation
from privacy.securesum.terms import LEAST_COHORT, default_terms

Study = Program | Schema | Mapping[str, object] | str | os.PathLike[str]
"""A program, or a schema in any form."""
SumWatch = Callable[[str, Any], None]
Vector = NDArray[np.uint64] | None
"""What a site would send; None from a site that drops out."""

NOBODY: Mapping[int, Collection[int]] = MappingProxyType({})
_DELTA = 1e-5
"""The δ at which the cost of a program's noise is shown if none was stated."""
_MEANING = (
    "This model comes from a simulation: all tables were in one process, and nothing was hidden "
    "from whoever ran it. In a session the same sums would be protected by its terms."
)


class Simulated(GlobalModel):
    """The global model, as `join` returns it, and what only a simulation can show.

    program: what was run. model: as the coordinator would have it.
    states: the state at the end of each stage. sums, released: how many sums, and numbers in them.

    Its card and predictions need a program that fits a model; everything else needs none.
    """

    def __init__(
        self,
        *,
        program: Program,
        model: Model,
        states: tuple[Any, ...],
        sums: int,
        released: int,
        members: int,
        cohort: int,
        honest: int,
        delta: float | None,
        created: datetime,
        dealing: Dealing,
    ) -> None:
        """Keep the outcome of a program over `members` sites, whose rows `dealing` dealt.

        cohort: the sites in the smallest sum. honest: those whose noise is sufficient.
        """
        self.program = program
        self.model = model
        self.states = states
        self.sums = sums
        self.released = released
        self.certificate = None
        self._names: Mapping[bytes, str] = {}
        self._members, self._cohort, self._honest = members, cohort, honest
        self._delta, self._created = delta, created
        self._home = None
        self._dealing = dealing
        self._artifact: Artifact | None = None

    @property
    def artifact(self) -> Artifact:  # type: ignore[override]
        """The finished model with its bytes and its card, made when it is first needed."""
        if self._artifact is None:
            self._artifact = Artifact.of(
                self.model,
                program=self.program,
                members=self._members,
                sums=self.sums,
                privacy=replace(self._privacy(), meaning=_MEANING),
                created=self._created,
                score_noise=self._score_noise(),
            )
        return self._artifact

    def _score_noise(self) -> dict[str, float] | None:
        """Return the noise in the sum that the scores came from."""
        released = released_scores(self.program, self.model)
        if released is None:
            return None
        encoding = Encoding.of_sum(
            released.layout,
            multiplier=released.multiplier,
            honest=self._honest,
            members=self._members,
        )
        return encoding.noises(contributors=self._members)

    def _dealing_of(self, home: str | os.PathLike[str] | None) -> Dealing:
        return self._dealing if home is None else super()._dealing_of(home)

    def _took_part(self, home: str | os.PathLike[str] | None) -> bool:
        return home is None or super()._took_part(home)

    def _privacy(self) -> Privacy:
        """Return what the noise of this run promises; a model that it started from costs more."""
        of = partial(
            Privacy.of,
            self.program.schema,
            min_cohort=self._cohort,
            max_colluders=self._cohort - self._honest,
        )
        if self.program.privacy is None:
            return of()
        releases = promised(release_plan(self.program), honest=self._honest)
        delta = self._delta or _DELTA
        return of(
            epsilon=cost(releases, delta=delta).epsilon if releases else 0.0,
            delta=delta,
            mechanism=MECHANISM,
            releases=self.sums,
        )

    def __repr__(self) -> str:
        targets = ", ".join(target.name for target in self.program.schema.targets)
        return f"Simulated({self._members} sites, {self.sums} sums, predicts {targets})"


def simulate(
    study: Study,
    tables: Iterable[object],
    dealing: Dealing | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    max_rows_per_patient: int = 1,
    secure: bool = True,
    model: Model | None = None,
    watch: SumWatch | None = None,
    honest: int | None = None,
    dropouts: Mapping[int, Collection[int]] = NOBODY,
    source: noise.Source = noise.exact,
) -> Simulated:
    """Run a study over one table per site, and return the global model.

    study: a schema (a `Schema`, its JSON as text or as a mapping, or the path of its file), for
        which the program is made as the coordinator makes it for a session that states none; or a
        `Program`.
    tables: whatever `join` takes (pandas, polars, pyarrow, a mapping of columns, the path of a CSV
        or Parquet file), or a `Site`, which is dealt already. Rows without a target are left out.
    dealing: deals the rows of every table to training, stopping and calibration, alike however
        they are divided among tables; by default at random, other rows each time: pass a `Dealing`
        for the same ones. In a session each site has its own, in its home: pass its `site_of_home`
        to get the session's numbers.
    epsilon, delta: the most that is spent on any one patient (any one row, if the schema names no
        patient column): the noise is planned as the coordinator plans it for one run.
    max_rows_per_patient: how many rows of one patient are used, with that noise.
    secure: whether the real secure sum runs, which needs at least three tables.
    model: the model that the first stage starts from, if the program continues an earlier one.
    watch: called with the algorithm's name and its state after every sum.

    For a private program:
    dropouts: for each sum (counted from 0 over the run), the sites (counted from 0) missing in it.
    honest: the number of sites whose noise must be sufficient; by default the smallest number of
        sites in any sum. Use fewer if some may collude.
    source: the source of the noise.
    """
    tables = list(tables)
    if not tables:
        raise EmptyTable("tables is empty: pass one table per site")
    budget = _budget(epsilon, delta)
    program = _program(study, len(tables), budget, max_rows_per_patient)
    dealing = Dealing.generate() if dealing is None else dealing
    sites = [
        table if isinstance(table, Site) else _dealt(program, table, dealing) for table in tables
    ]
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
                return Simulated(
                    program=program,
                    model=state.model,
                    states=tuple(states),
                    sums=position.sum_index,
                    released=released,
                    members=len(sites),
                    cohort=left,
                    honest=honest or left,
                    delta=delta,
                    created=datetime.now(UTC),
                    dealing=dealing,
                )
            position = positions.next_stage(position)
            continue
        # As at a hospital, which computes from the state that it has replayed itself.
        ready = rehearsed(algorithm, checked(state, program, position.stage))
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


def _budget(epsilon: float | None, delta: float | None) -> tuple[float, float] | None:
    if epsilon is None and delta is None:
        return None
    if epsilon is None or delta is None:
        raise ProgramError("epsilon and delta belong together: pass both or neither")
    return epsilon, delta


def _program(
    study: Study, sites: int, budget: tuple[float, float] | None, max_rows_per_patient: int
) -> Program:
    """Return the program of a study, with the noise that its budget needs."""
    if isinstance(study, Program):
        program = study
    else:
        # As a session over so many members: with fewer than three there can be none.
        least = default_terms(bytes(16), sites).min_cohort
        program = automatic_program(
            schema_of(study), min_sites=min(least, sites), private=budget is not None
        )
    if budget is None:
        return program
    if program.privacy is not None:
        raise ProgramError("the program has its noise already: leave epsilon and delta out")
    epsilon, delta = budget
    return with_noise(
        program,
        partial(planned_noise, epsilon=epsilon, delta=delta),
        max_rows_per_patient=max_rows_per_patient,
    )


def _dealt(program: Program, table: object, dealing: Dealing) -> Site:
    return read_site(
        table,
        program.schema,
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
