"""A draft policy that allows exactly what a session requests, as TOML for a person to review."""

import json
import math

from client_sdk.gate.disclosure import Disclosure
from client_sdk.gate.policy import Policy
from client_sdk.readable import quoted
from kernels.rounds.program import Program
from privacy.securesum.terms import Terms


def draft(program: Program, terms: Terms, *, delta: float | None = None) -> str:
    """Return a policy that allows exactly this program and these terms, as TOML for review.

    delta: the δ at which the session, and then also this site, counts ε.
    """
    asked = Disclosure.of(program, terms, delta=delta)
    names = list(dict.fromkeys(algorithm.NAME for algorithm, _ in program.algorithms()))
    standard = Policy()
    noted = "\n".join(f"# {line}" for line in str(asked).splitlines())
    few = terms.min_cohort < standard.least_cohort
    return f"""\
# A draft for review: it allows exactly what the session requests. Delete what you do not want.
#
{noted}

# Minimum number of members with confirmed keys in every sum: the session's own minimum.{
        f" It is below the recommended {standard.least_cohort}." if few else ""
    }
least_cohort = {terms.min_cohort}
# Number of members that may collude with the coordinator and still learn nothing but the sum.
least_colluders = {terms.max_colluders}
# {
        "The session continues without members that stop responding: two sums, with and without "
        "this hospital, reveal its own numbers. This line accepts that."
        if terms.allow_shrinking
        else "Exact sums always have the same members; a session that gives this up is refused."
        if asked.cost is None
        else "Not used with differential privacy: the noise covers changes of membership."
    }
allow_shrinking = {"true" if terms.allow_shrinking else "false"}
# Minimum number of training rows of this hospital: in total, for each of the
# {program.kernel.features} features of the kernel, and for each level of a categorical column.
# With fewer rows, sums can reveal the rows themselves.
least_rows = {standard.least_rows}
rows_per_feature = {standard.rows_per_feature}
least_level_rows = {standard.least_level_rows}
# Minimum number of rows in each part that is held out of training and scored, unless it is empty.
least_rows_held_out = {standard.least_rows_held_out}
# Algorithms that may run: {"; ".join(f"{s.algorithm}, at most {s.sums}" for s in asked.stages)}.
algorithms = {json.dumps(names)}
# Columns that they may read.
columns = [{", ".join(map(quoted, asked.columns))}]
# Maximum number of sums that a run may request; the program needs at most {asked.sums}.
max_sums = {asked.sums}
# Maximum number of runs of the session over this hospital's table, each with up to max_sums sums.
max_runs = {standard.max_runs}
# {
        "The session has differential privacy."
        if terms.differential_privacy
        else "The session has NO differential privacy: its sums are exact. This line accepts that."
    }
without_differential_privacy = {"false" if terms.differential_privacy else "true"}{
        _budget(asked, program.schema.patient)
    }{_samples(asked)}
# Keys of other members count only once they are confirmed: by a roster file or `veilgp confirm`.
trust_first_use = false
# The last day on which anything is answered. Set it to the end of the project.
# expires = 2030-12-31
# Algorithms that may reveal this hospital's own numbers: none.
consents = []
"""


def _samples(asked: Disclosure) -> str:
    if not asked.samples:
        return ""
    return """
# Whether samples of this hospital's own model also leave, NOT MASKED, as described above. The
# session does not need them: with false, this hospital still takes part in all sums. With true, the
# coordinator and everyone it serves can attack a model of this hospital's rows alone. Samples that
# were sent can be withdrawn (`veilgp withdraw`), and an honest coordinator then deletes them; what
# a dishonest coordinator has learned from them cannot be undone.
open_ensemble = false"""


def _budget(asked: Disclosure, patient: str | None) -> str:
    if asked.cost is None:
        return ""
    return f"""
# The maximum that may ever be spent on any one {asked.unit} of this table, over all sessions and
# coordinators: enough for one run of this session. Spent budget cannot be recovered.
# delta is the session's: it should be well below 1 / (number of {asked.unit}s in this table).
epsilon = {math.ceil(asked.cost.epsilon * 100) / 100:g}
delta = {asked.cost.delta:g}
{_unit(patient)}"""


def _unit(patient: str | None) -> str:
    if patient is not None:
        return (
            f"# The column that identifies the patient: noise that covers less is refused.\n"
            f"patient = {quoted(patient)}"
        )
    return (
        "# The session treats EACH ROW as a separate patient. If this table has several rows per\n"
        "# patient, epsilon is spent on each row: ask for a session with a patient column, and "
        "set it here:\n# patient = ..."
    )
