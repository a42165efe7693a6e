"""A policy that would allow exactly what a session asks for, as TOML for a person to review."""

import json
import math

from client_sdk.gate.disclosure import Disclosure
from client_sdk.gate.policy import Policy
from client_sdk.readable import quoted
from kernels.rounds.program import Program
from privacy.securesum.terms import Terms


def draft(program: Program, terms: Terms, *, delta: float | None = None) -> str:
    """Write the policy that would allow exactly this, for a person to review.

    delta: at which the session counts its ε, and this site then too.
    """
    asked = Disclosure.of(program, terms, delta=delta)
    names = list(dict.fromkeys(algorithm.NAME for algorithm, _ in program.algorithms()))
    standard = Policy()
    noted = "\n".join(f"# {line}" for line in str(asked).splitlines())
    few = terms.min_cohort < standard.least_cohort
    return f"""\
# A draft for review: it allows exactly what the session asks for. Delete what you do not want.
#
{noted}

# Members with confirmed keys in every sum: the session's least number.{
        f" That is below {standard.least_cohort}, this software's advice." if few else ""
    }
least_cohort = {terms.min_cohort}
# Members that may work together with the coordinator and still learn nothing but the sum.
least_colluders = {terms.max_colluders}
# {
        "The session goes on without members that fall silent: two sums, with and without "
        "this hospital, show its own numbers. This accepts that."
        if terms.allow_shrinking
        else "Exact sums always have the same members; a session that gives this up is refused."
        if asked.cost is None
        else "Of no use with differential privacy: noise covers who is in a sum and who is not."
    }
allow_shrinking = {"true" if terms.allow_shrinking else "false"}
# Training rows this hospital must have, in all, for each of the {program.kernel.features} features
# of the kernel, and of each level of a categorical column. Below, sums come close to being data.
least_rows = {standard.least_rows}
rows_per_feature = {standard.rows_per_feature}
least_level_rows = {standard.least_level_rows}
# Rows in each part that is held out of training and scored, where there are any.
least_rows_held_out = {standard.least_rows_held_out}
# What may be computed: {"; ".join(f"{s.algorithm}, at most {s.sums}" for s in asked.stages)}.
algorithms = {json.dumps(names)}
# What may be read for it.
columns = [{", ".join(map(quoted, asked.columns))}]
# Sums that a run may ask for; the program needs at most {asked.sums}.
max_sums = {asked.sums}
# Runs of the session that may sum this hospital's table, each with so many sums at most.
max_runs = {standard.max_runs}
# {
        "The session has differential privacy."
        if terms.differential_privacy
        else "The session has NO differential privacy: its sums are exact. This accepts that."
    }
without_differential_privacy = {"false" if terms.differential_privacy else "true"}{
        _budget(asked, program.schema.patient)
    }{_samples(asked)}
# Keys of other members count once they are confirmed: by a roster file, or `veilgp confirm`.
trust_first_use = false
# The last day on which anything is answered. Set it to the end of the project.
# expires = 2030-12-31
# Algorithms that may show this hospital's own numbers; none.
consents = []
"""


def _samples(asked: Disclosure) -> str:
    if not asked.samples:
        return ""
    return """
# Whether the samples of this hospital's own model leave too, NOT MASKED, as is said above. The
# session does not need them: with false this hospital takes part in all of its sums. With true the
# coordinator, and everyone it serves, can attack a model of this hospital's rows alone. What was
# sent can be withdrawn (`veilgp withdraw`), and an honest coordinator then deletes it; what a
# dishonest one has learned from it stays learned.
open_ensemble = false"""


def _budget(asked: Disclosure, patient: str | None) -> str:
    if asked.cost is None:
        return ""
    return f"""
# The most that may ever be spent on any one {asked.unit} of this table, over all sessions and
# coordinators: enough for one run of this session. What is spent does not come back.
# delta is the session's: it should be well below one over the number of {asked.unit}s here.
epsilon = {math.ceil(asked.cost.epsilon * 100) / 100:g}
delta = {asked.cost.delta:g}
{_unit(patient)}"""


def _unit(patient: str | None) -> str:
    if patient is not None:
        return (
            f"# Whose a row is: noise that covers less than a patient is refused.\n"
            f"patient = {quoted(patient)}"
        )
    return (
        "# The session takes EACH ROW for a patient of its own. If this table has several rows of "
        "a\n# patient, epsilon is spent on each of them: ask for a session with a patient column, "
        "and name it:\n# patient = ..."
    )
