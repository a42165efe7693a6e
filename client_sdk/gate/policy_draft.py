"""A draft policy that allows exactly what a session requests, as TOML for a person to review."""

import json
import math
from collections.abc import Collection
from contextlib import suppress
from dataclasses import fields

from client_sdk.gate.dictionary import Dictionary
from client_sdk.gate.disclosure import Disclosure, known_under
from client_sdk.gate.policy import Policy
from client_sdk.gate.recipes import Recipes, numbers_in
from client_sdk.gate.refusals import rounded_up
from client_sdk.gate.row_band import ProposedBand
from client_sdk.readable import quoted
from kernels.errors import ProgramError
from kernels.rounds.plan import (
    algorithms_of,
    dealt_share,
    declared,
    mixes_kernels,
    most_features,
    summed_together,
)
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, program_of
from kernels.rounds.site.site import Part
from kernels.rounds.task import program_digest
from privacy.securesum.terms import Terms


def draft(
    program: Program,
    terms: Terms,
    *,
    delta: float | None = None,
    dictionary: Dictionary | str = "",
    band: ProposedBand | None = None,
) -> str:
    """Return a policy that allows exactly this program and these terms, as TOML for review.

    delta: the δ at which the session, and then also this site, counts ε.
    dictionary: the site's data dictionary, or the text of its tables; without one the policy allows
        no column.
    band: the row band to propose; by default the smallest, whatever the table has.
    """
    asked = Disclosure.of(program, terms, delta=delta)
    stages = range(len(program.stages))
    names = list(dict.fromkeys(name for n in stages for name in algorithms_of(program, n)))
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
# Minimum number of rows of this hospital that are summed together: in total, and for each level of
# a categorical column. With fewer rows, sums can reveal the rows themselves.{_summed(program)}
least_rows = {standard.least_rows}
least_level_rows = {standard.least_level_rows}
# Minimum number of rows that are summed together for each feature of the kernel; {
        _features(program)
    }.
rows_per_feature = {standard.rows_per_feature:g}
# It holds for training rows and for held-out rows that are summed without the others. Another
# number for the latter: with fewer rows than features, hospitals that collude with each other, and
# whoever has the model, could test who is among them. 0: only least_rows applies to them.
# rows_per_feature_held_out = {standard.rows_per_feature:g}
# Minimum number of rows in each part that is held out of training and scored, unless it is empty.
least_rows_held_out = {standard.least_rows_held_out}
# The session's program, by its SHA-256: this session, and no other program, may be joined.
programs = [{quoted(program_digest(program.to_json()))}]
# Models that a run may start from, besides those that this hospital obtained from its own runs, and
# those that a quorum of members with confirmed keys has signed.
parents = []
# Algorithms that may run: {"; ".join(f"{s.algorithm}, at most {s.sums}" for s in asked.stages)}.
algorithms = {json.dumps(names)}
# Columns that they may read.
columns = [{", ".join(map(quoted, asked.columns))}]
{_numbers(program, terms)}
# Maximum number of exact sums that this data source may ever be in, over all sessions. Sums that
# were abandoned count too, so this is twice what the program needs, {asked.sums}.
max_sums = {2 * asked.sums}
# Maximum number of runs, and of distinct programs, over this data source, over all sessions.
max_runs = {standard.max_runs}
max_programs = {standard.max_programs}
# Whether this table may have both exact sums and sums with noise, whose difference undoes it.
exact_and_private = false
# {
        "The session has differential privacy."
        if terms.differential_privacy
        else "The session has NO differential privacy: its sums are exact. This line accepts that."
    }
without_differential_privacy = {"false" if terms.differential_privacy else "true"}{_readers(terms)}{
        _budget(asked, program.schema.patient)
    }{_samples(asked)}
# Keys of other members count only once they are confirmed: by a roster file or `veilgp confirm`.
# With true, a member that the coordinator invented could hold the group key: totals would no
# longer be verified against the coordinator.
trust_first_use = false
# Answers wait until this many seconds have passed, or longer where a stage takes longer, so that
# their time says nothing about this table. The times are measured on made-up rows before a run.
least_answer_s = 0.05
{_row_band(band or ProposedBand.smallest())}
# The last day on which anything is answered. Set it to the end of the project.
# expires = 2030-12-31
# Algorithms that may reveal this hospital's own numbers: none.
consents = []

{_recipes(program)}{_dictionary_tables(dictionary)}"""


def _numbers(program: Program, terms: Terms) -> str:
    """Return the limits of the disclosure ledger: the default, or what the program needs."""
    standard = Policy()
    runs = _runs_of(program)
    counted = [known_under(terms, run) for run in runs]
    cells, rows = counted[0].cells, f"{counted[0].rows:,.0f} rows × {counted[0].columns} columns"
    needed = {
        "coordinator_ratio": sum(own.coordinator for own in counted),
        "hospital_ratio": sum(own.hospitals for own in counted),
    }
    lines = [
        "# Maximum number of exact numbers about this data source that may ever become known, over",
        "# all sessions: to the coordinator, and to each hospital. Both lines are divided by the",
        f"# cells of the other members' rows, {rows}, from the number",
        "# of rows that the program states (least_rows). A run stops if there are fewer.",
    ]
    for name, numbers in needed.items():
        default = getattr(standard, name)
        if program.privacy is not None or numbers <= default * cells:
            lines.append(f"{name} = {default}")
            continue
        whom = "the coordinator" if name == "coordinator_ratio" else "each hospital"
        lines += [
            f"# MORE THAN RECOMMENDED ({default:g}): a run of each kind makes {numbers:,} numbers",
            f"# known to {whom}, {numbers / counted[0].rows:.3g} per row. ABOVE 1 PER ROW,",
            "# MEMBERSHIP OF LISTED CANDIDATES IS NOT PROTECTED without differential privacy:",
            "# someone who has the records of candidates can test which of them are in",
            "# the tables. Ask for fewer features or steps, more rows, or differential privacy; or",
            "# accept it with this line.",
            f"{name} = {rounded_up(numbers / cells):g}",
        ]
    return "\n".join(lines)


def _summed(program: Program) -> str:
    """Say which rows are summed without the training rows, and how many the table must have."""
    standard, lines = Policy(), ""
    least = max(standard.least_rows, math.ceil(standard.rows_per_feature * most_features(program)))
    for parts, stage in summed_together(program).items():
        share = dealt_share(parts, program.held_out)
        enough = math.ceil(least / share) if share else 0
        if program.privacy is None and Part.TRAINING not in parts and enough:
            lines += (
                f"\n# {stage!r} sums held-out rows without the others: of these there must be as "
                f"many too,\n# and enough for each feature (below), {least:,}, which takes about "
                f"{enough:,} rows in all. With\n# fewer, ask for a session without it."
            )
    return lines


def _features(program: Program) -> str:
    """Say how many features count."""
    features = f"{most_features(program):,}"
    if not mixes_kernels(program):
        return f"the program has {features}"
    return (
        f"the program has up to {features} (of both kernels\n# where two are mixed: each has a "
        "matrix of products over the same rows)"
    )


def _row_band(band: ProposedBand) -> str:
    return f"""\
# HOW MANY ROWS the times are measured for: a power of two, at least twice the rows that this table
# has now, with room to grow. Choose it once for this data source: it is kept in the home, and only
# `veilgp row-band` changes it. The coordinator can tell it from when answers leave, and so learns
# that the table had at most half as many rows when this was chosen, and nothing else about them. A
# larger number says less and makes every answer take longer, in proportion; one number for all
# members of a study says nothing about any of them.
# {band.because}
row_band = {band.rows}"""


def _runs_of(program: Program) -> list[Program]:
    """Return the programs of the runs that a session can have, without those that need consent."""
    found = []
    for kind in (Kind.TRAIN, Kind.LINEAR, Kind.EVALUATE):
        with suppress(ProgramError):
            found.append(program_of(kind, program))
    return found


def _dictionary_tables(dictionary: Dictionary | str) -> str:
    if isinstance(dictionary, str):
        return f"\n{dictionary}" if dictionary else ""
    return f"""
# What these columns are at this hospital.
{dictionary.to_toml("dictionary.")}"""


def _recipes(program: Program) -> str:
    """Return the table [recipes]: the default ranges, widened where the program needs it."""
    own = {each.name: getattr(Recipes(), each.name) for each in fields(Recipes)}
    refused = {each.name for each in Recipes().problems(program)}
    stages = declared(program)
    for name, values in numbers_in(program).items():
        if name in refused:
            own[name] = (min(*values, own[name][0]), max(*values, own[name][1]))
    if "kernels" in refused:
        asked = (kernel.architecture.value for kernel in program.kernels)
        own["kernels"] = tuple(dict.fromkeys((*own["kernels"], *asked)))
    own["max_rate_times_steps"] = max(
        own["max_rate_times_steps"], *(stage.rate_times_steps for stage in stages)
    )
    own["max_local_passes"] = max(
        own["max_local_passes"], *(stage.local_passes for stage in stages)
    )
    sets = {stage.public_set: None for stage in stages if stage.public_set is not None}
    own["public_sets"] = tuple(sets)
    lines = [f"{name} = {_toml(value)}" + _widened(name, refused) for name, value in own.items()]
    return "\n".join(
        [
            "# The range of kernels, training and splits. Extreme parameters turn an honest",
            "# algorithm into a question about single patients; the standard ranges allow the",
            "# defaults of all algorithms. public_sets: SHA-256 of the public tables that the",
            f"# session uses, here {len(sets)}: look at their rows before you approve them.",
            "[recipes]",
            *lines,
            "",
        ]
    )


def _widened(name: str, refused: Collection[str]) -> str:
    return "  # WIDER THAN RECOMMENDED, because the session asks for it" if name in refused else ""


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return quoted(value) if isinstance(value, str) else repr(value)


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


def _readers(terms: Terms) -> str:
    """Return the lines that approve the session's terms: approving its program does not."""
    if terms.differential_privacy:
        return """
# Whether the coordinator may read exact sums, and have a model of them. This session has neither:
# noise covers its sums and its model.
open_sums = false
served_model = false"""
    sums = (
        """\
# Whether the coordinator may read exact sums. The session does not ask for it: its sums are blind,
# so only members read them. With false, a session whose sums the coordinator reads is refused."""
        if terms.blind
        else """\
# Whether the coordinator may read exact sums. The session asks for it: its sums are OPEN, and THE
# COORDINATOR READS EVERY SUM. Ask for a session with blind sums, which only members can read; or
# accept it with this line."""
    )
    model = (
        """\
# Whether the coordinator may have the finished model of exact sums. The session does not ask for
# it: its model is for members only. With false, a session in which the coordinator has the model is
# refused."""
        if terms.members_only
        else """\
# Whether the coordinator may have the finished model of exact sums. The session asks for it: THE
# COORDINATOR HAS THE MODEL, and serves predictions with it. The model contains exact sums over all
# members: whoever has it can test whether someone whose record they know is in the tables. If only
# members need the model, ask for a session whose model is for members only; or accept it with this
# line."""
    )
    return f"""
{sums}
open_sums = {_toml(not terms.blind)}
{model}
served_model = {_toml(not terms.members_only)}"""


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
