"""The route `auto`: the private program of a session that states none, planned as a session plans.

Nothing here is chosen: the program is made from the schema with its public bounds
(`kernels.rounds.automatic`), and its noise from ε and δ (`kernels.rounds.noise_planning`). The
calibration rows pay for recalibration and for the session's own evaluation; the other routes have
no evaluation.
"""

from functools import partial

from benchmarks.dp.data import Private
from benchmarks.dp.routes import DELTA
from kernels.rounds.automatic import automatic_program
from kernels.rounds.noise_planning import with_noise
from kernels.rounds.program import Program
from privacy.accounting.promises import planned_noise


def automatic(data: Private, epsilon: float) -> Program:
    """Return the program of a session over the set's schema."""
    # One client has all rows in the comparison with a central model.
    schema = data.dataset.schema
    program = automatic_program(schema, min_sites=1, max_rows=20_000, private=True)
    return with_noise(program, partial(planned_noise, epsilon=float(epsilon), delta=DELTA))
