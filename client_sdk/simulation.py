"""A whole program over a list of tables in one process: what a session would do, without a network.

`secure=True` runs the real secure sum, with real clients and a real coordinator that exchange
bytes. `secure=False` adds the same encoded integers without masks. Both give the same numbers, to
the last bit, and those of a session: what a mask hides, it also cancels.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.errors import EmptyTable
from kernels.rounds import storage
from kernels.rounds.algorithm import Contribution
from kernels.rounds.broadcast import received
from kernels.rounds.model import Model
from kernels.rounds.program import Program
from kernels.rounds.site import Site
from privacy.encoding import Encoding
from privacy.layout import SecureTotal
from privacy.simulator import Simulation

Table = Mapping[str, object]
Watch = Callable[[str, Any], None]


@dataclass(frozen=True, eq=False)
class Simulated:
    """The model, the state at the end of each stage, and how many numbers were released."""

    model: Model
    states: tuple[Any, ...]
    sums: int
    released: int


def simulate(
    program: Program,
    tables: Iterable[Table | Site],
    seed: int,
    *,
    secure: bool = True,
    model: Model | None = None,
    watch: Watch | None = None,
) -> Simulated:
    """Run a program over one table per site, and return what the coordinator would have.

    seed: deals each site's rows to training, stopping and calibration; a `Site` has done so.
    model: what the first stage starts from, for a program that goes on with an earlier one's.
    watch: called with the algorithm's name and its state after every sum.
    """
    sites = [
        table
        if isinstance(table, Site)
        else Site.of_table(program.schema, table, held_out=program.held_out, seed=seed)
        for table in tables
    ]
    if not sites:
        raise EmptyTable("no tables: a program runs over one table for each site")
    simulation = _opened(len(sites)) if secure else None
    model, states, sums, released = model or program.start(), [], 0, 0
    for stage, (algorithm, spec) in enumerate(program.algorithms()):
        state = algorithm.initial(spec, model)
        while not algorithm.finished(state):
            # Sites see the broadcast's bytes and nothing else of the coordinator's state.
            broadcast = storage.encode(state, broadcast=True)
            seen = received(broadcast, program, stage)
            encoding = Encoding.finest(algorithm.layout(state), max_clients=len(sites))
            contributions = (algorithm.contribute(seen, site) for site in sites)
            if simulation is None:
                total = add_plainly(encoding, contributions)
            else:
                total = simulation.total(
                    encoding, list(contributions), statistic=algorithm.NAME, broadcast=broadcast
                )
            state = algorithm.update(state, total)
            sums, released = sums + 1, released + encoding.layout.length
            if watch is not None:
                watch(algorithm.NAME, state)
        states.append(state)
        model = state.model
    return Simulated(model, tuple(states), sums, released)


def add_plainly(encoding: Encoding, contributions: Iterable[Contribution]) -> SecureTotal:
    """Add what the sites would have sent, without masks, rounded as the encoding rounds."""
    total = np.zeros(encoding.layout.length, dtype="<u8")
    contributors = 0
    for contribution in contributions:
        total += encoding.encode(contribution)
        contributors += 1
    return encoding.decode(total, contributors=contributors)


def _opened(sites: int) -> Simulation:
    simulation = Simulation(sites)
    simulation.open_epoch()
    return simulation
