"""The site's policy denies by default, names what it refuses, and never reports row counts."""

import io
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from client_sdk.errors import (
    AlgorithmForbidden,
    CohortTooSmall,
    ColumnForbidden,
    ConsentNotGiven,
    OpenSumsForbidden,
    PolicyExpired,
    PolicyFileError,
    PolicyRefusal,
    PolicyRefused,
    PrivacyRequired,
    RareLevel,
    RowBandMissing,
    ServedModelForbidden,
    TooFewColluders,
    TooFewRows,
    TooFewRowsHeldOut,
    TooFewRowsPerFeature,
    TooManySums,
    WrongRun,
)
from client_sdk.events import Disclosed, RunOpened, Unpinned
from client_sdk.gate import policy_draft
from client_sdk.gate.agreed_run import check_start
from client_sdk.gate.dictionary import Dictionary
from client_sdk.gate.disclosure import Disclosure
from client_sdk.gate.policy import Policy, policy_of
from client_sdk.gate.recipes import Recipes
from client_sdk.gate.refusal_report import public_detail
from client_sdk.gate.row_band import ProposedBand
from client_sdk.progress import PlainLines
from client_sdk.simulation import simulate
from client_sdk.tables.hospital_table import Changes, site_of
from client_sdk.tables.summary import TableSummary
from kernels.model.second import Second
from kernels.rounds.automatic import automatic_program
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation
from kernels.rounds.kernel import distillation, exact, fedavg, search
from kernels.rounds.layer import completion, linear, linear_two_sums, update
from kernels.rounds.plan import columns_read
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, program_of
from kernels.rounds.shared.public_set import columns_of
from kernels.rounds.site.site import Part
from kernels.tables.schema import Schema
from privacy.securesum.terms import default_terms
from tests.client_sdk.hospitals import drafted, permissive
from tests.dealing import dealing_of
from tests.kernels.rounds import outcomes
from tests.kernels.rounds.tables import KERNEL, SCHEMA, table, tables
from tests.kernels.rounds.tables import program as program_with

TODAY = date(2026, 11, 16)
TERMS = default_terms(bytes(16), 5)
PLENTY = TableSummary(2_000, 990, {"ward": {"medical": 900, "surgical": 900}})


def check(policy: Policy, program: Program, summary: TableSummary = PLENTY) -> None:
    policy.check_session(program, TERMS, today=TODAY)
    policy.check_table(program, summary)


def test_no_policy_allows_nothing_and_says_everything_that_is_missing(program: Program) -> None:
    with pytest.raises(PolicyRefused) as refused:
        check(policy_of(None), program)
    kinds = {type(problem) for problem in refused.value.problems}
    assert kinds == {
        AlgorithmForbidden,
        ColumnForbidden,
        OpenSumsForbidden,
        PrivacyRequired,
        RowBandMissing,
        ServedModelForbidden,
        TooManySums,
    }


def test_a_drafted_policy_allows_exactly_what_the_session_asks_for(program: Program) -> None:
    policy = drafted(program, TERMS)
    check(policy, program)
    policy.check_task(program, 0, confirmed=TERMS.min_cohort, sums=1, today=TODAY)
    assert set(policy.columns) == set(columns_read(program.schema))
    assert policy.max_sums == 2 * Disclosure.of(program, TERMS).sums
    for narrower, error in (
        (replace(policy, algorithms=policy.algorithms[:-1]), AlgorithmForbidden),
        (replace(policy, columns=policy.columns[1:]), ColumnForbidden),
        (replace(policy, max_sums=policy.max_sums // 2 - 1), TooManySums),
        (replace(policy, without_differential_privacy=False), PrivacyRequired),
        (replace(policy, open_sums=False), OpenSumsForbidden),
        (replace(policy, served_model=False), ServedModelForbidden),
        (replace(policy, row_band=None), RowBandMissing),
    ):
        with pytest.raises(error):
            check(narrower, program)


def test_a_draft_asks_for_the_row_band_in_words_and_a_table_is_only_a_proposal(
    program: Program,
) -> None:
    text = policy_draft.draft(program, TERMS)
    assert "row_band = 4096" in text
    assert "The coordinator can tell it" in text
    assert "No table was looked at" in text
    larger = policy_draft.draft(program, TERMS, band=ProposedBand.for_table(3000))
    assert "row_band = 16384" in larger
    assert "3000" not in larger
    assert "3,000" not in larger


@pytest.mark.parametrize(
    ("changes", "summary", "error", "code"),
    [
        ({"expires": date(2026, 11, 15)}, PLENTY, PolicyExpired, "policy.expired"),
        ({"least_rows": 50}, TableSummary(200_000, 49, {}), TooFewRows, "policy.rows"),
        (
            {"rows_per_feature": 3.0},
            TableSummary(200_000, 3 * KERNEL.features - 1, {}),
            TooFewRowsPerFeature,
            "policy.rows_per_feature",
        ),
        (
            {"least_rows_held_out": 5},
            TableSummary(200_000, 934, {}, {Part.STOPPING: 4}),
            TooFewRowsHeldOut,
            "policy.rows_held_out",
        ),
        (
            {"least_level_rows": 10},
            TableSummary(200_000, 934, {"ward": {"surgical": 9}}),
            RareLevel,
            "policy.level_rows",
        ),
    ],
)
def test_each_line_refuses_by_its_own_error_with_the_line_that_would_change(
    program: Program,
    changes: dict[str, Any],
    summary: TableSummary,
    error: type[PolicyRefusal],
    code: str,
) -> None:
    with pytest.raises(error) as refused:
        check(permissive(program, **changes), program, summary)
    assert refused.value.code == code
    assert next(iter(changes)) in refused.value.line
    assert refused.value.line in str(refused.value)
    told = public_detail(refused.value)
    for count in (str(summary.training_rows), "9"):
        assert count not in told, "the coordinator learns no count of rows"
    # The last day is valid, and so is exactly the required number of rows.
    enough = TableSummary(200_000, summary.training_rows + 1, {"ward": {"surgical": 10}})
    later = {"expires": TODAY} if "expires" in changes else changes
    check(permissive(program, **later), program, enough)


COMPLETED = program_with(linear.Spec(), completion.Spec(), held_out=0.2)
SCORED = evaluation.Spec(recalibrated=False)
FEW = {Part.STOPPING: 12, Part.CALIBRATION: 18}


@pytest.mark.parametrize(
    ("changes", "levels", "error", "said"),
    [
        ({"least_rows": 50}, {}, TooFewRows, "about 250 rows"),
        ({"rows_per_feature_held_out": 3.0}, {}, TooFewRowsPerFeature, "at most 10 features"),
        ({"least_level_rows": 10}, {"surgical": 4}, RareLevel, "merges the level"),
    ],
)
def test_floors_hold_for_held_out_rows_that_are_summed_without_the_others(
    changes: dict[str, Any], levels: dict[str, int], error: type[PolicyRefusal], said: str
) -> None:
    """With training rows alone counted, S of so few held-out rows was the rows (A12)."""
    wards = {"ward": {"surgical": 900}}
    of_parts = {part: {"ward": levels} for part in FEW}
    summary = TableSummary(2_000, 1_970, wards, FEW, held_out_level_rows=of_parts)
    policy = permissive(COMPLETED, **changes)
    with pytest.raises(error, match=r"(30|8) held-out rows") as refused:
        policy.check_table(COMPLETED, summary)
    text = str(refused.value)
    assert text.index("Ask for a session without the stage 'completion'") < text.index(
        "To allow it"
    )
    assert said in text
    assert "30" not in public_detail(refused.value)
    # Where they are only scored, or there are none, that is another matter.
    without = program_with(linear.Spec(), SCORED, held_out=0.2)
    policy.check_table(without, summary)
    policy.check_table(COMPLETED, TableSummary(2_000, 2_000, wards))


def test_without_a_line_of_their_own_held_out_rows_obey_the_line_of_all_rows() -> None:
    """A site that says three rows for each feature expects it of every matrix that is released."""
    summary = TableSummary(2_000, 1_970, {}, FEW)
    three = {"least_rows": 0, "rows_per_feature": 3.0, "rows_per_feature_held_out": None}
    for policy in (permissive(COMPLETED, **three), replace(Policy(), least_rows=0)):
        with pytest.raises(TooFewRowsPerFeature, match=r"30 held-out .* at most 10 ") as refused:
            policy.check_table(COMPLETED, summary)
        assert refused.value.line.startswith("rows_per_feature_held_out = ")
        replace(policy, rows_per_feature_held_out=0.0).check_table(COMPLETED, summary)
        replace(policy, rows_per_feature=1.0).check_table(COMPLETED, summary)
    text = policy_draft.draft(COMPLETED, TERMS)
    assert Policy.from_toml(text).rows_per_feature_held_out is None
    assert "# rows_per_feature_held_out = 3" in text


REAL = Schema(outcomes.MIXED.features, outcomes.MIXED.real)
MIXING = automatic_program(REAL, max_features=100, completed=False)
"""Two recipes of it train a kernel with 100 features."""


def test_floors_are_about_the_features_of_both_kernels_that_may_be_mixed() -> None:
    """Both have a matrix S over the same rows, and the disclosure ledger counts both."""
    policy = permissive(MIXING, rows_per_feature=3.0)
    policy.check_table(MIXING, TableSummary(750, 600, {}))
    with pytest.raises(TooFewRowsPerFeature) as refused:
        policy.check_table(MIXING, TableSummary(750, 599, {}))
    for said in ("has 200, of two kernels that it may mix", "blend = false", "at most 199"):
        assert said in str(refused.value)
    assert "the program has up to 200 (of both kernels" in policy_draft.draft(MIXING, TERMS)
    stages = [replace(own, blend=False) if hasattr(own, "blend") else own for own in MIXING.stages]
    alone = replace(MIXING, stages=tuple(stages))
    policy.check_table(alone, TableSummary(750, 300, {}))
    with pytest.raises(TooFewRowsPerFeature, match="the program has 100\\.") as refused:
        policy.check_table(alone, TableSummary(750, 299, {}))
    assert "mix" not in str(refused.value)
    # A run of the layer alone has no search that says so: the session's has.
    layer = program_of(Kind.LINEAR, alone)
    policy.check_table(layer, TableSummary(750, 300, {}), session=alone)
    for session in (None, MIXING):
        with pytest.raises(TooFewRowsPerFeature):
            policy.check_table(layer, TableSummary(750, 300, {}), session=session)


def test_a_run_cannot_bring_a_second_kernel_in_with_the_model_that_it_starts_from() -> None:
    """It would have been checked with the floors of a session that mixes none."""
    stages = [replace(own, blend=False) if hasattr(own, "blend") else own for own in MIXING.stages]
    alone = replace(MIXING, stages=tuple(stages))
    start = replace(MIXING.start(), choices=())
    deep = replace(start, kernel=MIXING.choices[-1])
    mixed = deep.advanced(second=Second(kernel=MIXING.choices[-1], share=0.5))
    for model, session in ((deep, alone), (deep, MIXING), (mixed, MIXING)):
        check_start(model, session)
    with pytest.raises(WrongRun, match="200 features, but models of this session have at most 100"):
        check_start(mixed, alone)


def test_a_draft_says_how_many_rows_a_completed_model_takes() -> None:
    assert "which takes about 250 rows in all" in policy_draft.draft(COMPLETED, TERMS)
    other = policy_draft.draft(program_with(linear.Spec(), held_out=0.2), TERMS)
    assert "rows in all" not in other


def test_a_search_is_refused_without_the_algorithms_that_it_trains_its_kernels_by() -> None:
    program = automatic_program(outcomes.MIXED, max_rows=1000)
    policy = drafted(program, TERMS)
    policy.check_session(program, TERMS, today=TODAY)
    fewer = replace(policy, algorithms=tuple(a for a in policy.algorithms if a != "exact"))
    with pytest.raises(AlgorithmForbidden, match="'exact' in its stage 'search'") as refused:
        fewer.check_session(program, TERMS, today=TODAY)
    assert refused.value.line == 'algorithms = [..., "exact"]'
    assert "exact" in public_detail(refused.value)
    task = {"confirmed": TERMS.min_cohort, "sums": 1, "today": TODAY}
    with pytest.raises(AlgorithmForbidden, match="exact"):
        fewer.check_task(program, 1, **task)
    fewer.check_task(program, 0, **task)


def test_the_range_of_rates_and_steps_covers_the_recipes_of_a_search() -> None:
    program = automatic_program(outcomes.MIXED, max_rows=1000)
    assert [*Recipes().problems(program)] == []
    stages = list(program.stages)
    steep = replace(stages[1].recipes[-1], learning_rate=0.9)
    stages[1] = search.Spec(recipes=(*stages[1].recipes[:-1], steep))
    found = [own.name for own in Recipes().problems(replace(program, stages=tuple(stages)))]
    assert found == ["max_rate_times_steps"]


def test_terms_are_the_sites_to_accept_not_only_the_sessions_to_set(program: Program) -> None:
    policy = permissive(program, least_cohort=5)
    naive = replace(TERMS, max_colluders=0)
    with pytest.raises(TooFewColluders):
        policy.check_session(program, naive, today=TODAY)
    replace(policy, least_colluders=0).check_session(program, naive, today=TODAY)
    with pytest.raises(TooFewColluders):
        check(replace(policy, least_colluders=2), program)
    with pytest.raises(TooFewColluders):
        policy.check_members(TERMS, 7)
    policy.check_members(TERMS, 6)


def test_the_disclosure_says_what_a_session_gives_up(program: Program) -> None:
    shown = [
        str(Disclosure.of(program, terms)) for terms in (TERMS, replace(TERMS, max_colluders=0))
    ]
    assert len(set(shown)) == 2


def test_a_share_that_holds_one_patient_out_is_refused_by_the_standard_policy() -> None:
    """Otherwise their exact squared error would leave if no other member holds out rows."""
    made = program_with(exact.Spec(steps=1, penalties=(3.0,)), held_out=0.004)
    policy = permissive(made, least_rows_held_out=Policy().least_rows_held_out)
    own = site_of(made, table(800, seed=3), dealing_of(7))
    assert 0 < own.site.count(Part.STOPPING) < 5
    with pytest.raises(TooFewRowsHeldOut):
        policy.check_table(made, own.summary)
    # If no stage scores them, or there are none, nothing about them leaves.
    policy.check_table(program_with(held_out=0.004), own.summary)
    policy.check_table(
        made, site_of(replace(made, held_out=0.0), table(800, seed=3), dealing_of(7)).summary
    )
    # The usual share of an ordinary table is enough.
    usual = replace(made, held_out=0.2)
    policy.check_table(usual, site_of(usual, table(160, seed=3), dealing_of(7)).summary)


def test_the_door_counts_sums_and_confirmed_members(program: Program) -> None:
    policy = permissive(program, max_sums=3, least_cohort=5)
    task = {"confirmed": 5, "sums": 3, "today": TODAY}
    policy.check_task(program, 1, **task)
    with pytest.raises(TooManySums):
        policy.check_task(program, 1, **{**task, "sums": 4})
    with pytest.raises(CohortTooSmall) as refused:
        policy.check_task(program, 1, **{**task, "confirmed": 4})
    assert "at least 5 members" in public_detail(refused.value)
    with pytest.raises(AlgorithmForbidden):
        replace(policy, algorithms=("moments",)).check_task(program, 1, **task)
    with pytest.raises(PolicyExpired):
        replace(policy, expires=date(2026, 1, 1)).check_task(program, 1, **task)


@pytest.mark.parametrize(
    "text",
    [
        "least_cohrt = 5",
        "least_cohort = -1",
        "least_cohort = true",
        "least_cohort = 5.0",
        'rows_per_feature = "3"',
        "rows_per_feature = nan",
        "rows_per_feature = inf",
        'algorithms = "exact"',
        'algorithms = ["exakt"]',
        "columns = [1]",
        "without_differential_privacy = 1",
        "open_sums = 1",
        'served_model = "yes"',
        'expires = "2027-01-01"',
        "expires = 2027-01-01T00:00:00Z",
        "[policy]",
        "least_cohort =",
    ],
)
def test_a_policy_with_a_wrong_line_is_refused(text: str) -> None:
    with pytest.raises(PolicyFileError):
        Policy.from_toml(text)


def test_a_policy_is_read_from_toml(tmp_path: Any) -> None:
    path = tmp_path / "site.toml"
    path.write_text('least_cohort = 7\nalgorithms = ["exact"]\nexpires = 2027-01-01\n')
    policy = policy_of(path)
    assert policy == Policy(least_cohort=7, algorithms=("exact",), expires=date(2027, 1, 1))
    with pytest.raises(PolicyFileError, match="cannot read the policy"):
        policy_of(tmp_path / "absent.toml")


# More public rows than the kernel has features, so that the Gram matrix is the longest sum.
DISTILLATION = distillation.Spec(
    public=columns_of(table(30, seed=9)),
    rounds=2,
    local_steps=1,
    distillation_steps=1,
    patience=0,
)


@pytest.mark.parametrize(
    "stages",
    [
        (exact.Spec(steps=2, penalties=(3.0, 30.0)),),
        (fedavg.Spec(rounds=2, local_steps=1),),
        (fedavg.Spec(rounds=2, local_steps=1, validate=False),),
        (replace(DISTILLATION, alphas=(1.0, 10.0)),),
        (replace(DISTILLATION, alphas=(1.0,), validate=False),),
        (linear_two_sums.Spec(),),
    ],
)
def test_no_run_asks_for_more_than_was_disclosed(stages: tuple[object, ...]) -> None:
    program = program_with(*stages)
    told = Disclosure.of(program, TERMS)
    simulated = simulate(program, tables(3), dealing_of(7), secure=False)
    assert simulated.sums <= told.sums
    assert simulated.released <= told.numbers
    assert told.sums <= simulated.sums + 2, "a bound that says something"


def test_the_disclosure_says_what_it_must(program: Program) -> None:
    text = str(Disclosure.of(program, TERMS))
    stage = f"exact/{exact.VERSION}"
    for word in (*columns_read(program.schema), "No row", "differential privacy: NO", stage):
        assert word in text
    assert "masked" in text
    assert "An exact sum minus a noisy sum" in text


def test_the_digest_of_a_table_is_of_its_rows_whatever_their_order(program: Program) -> None:
    own = table(40)
    back = {name: column[::-1] for name, column in own.items()}
    fewer = {name: column[1:] for name, column in own.items()}
    digests = [site_of(program, data, dealing_of(7)).digest for data in (own, back, fewer)]
    assert digests[0] == digests[1] != digests[2]
    assert len(digests[0]) == 32


def test_a_table_whose_rows_are_dealt_otherwise_is_another_table(program: Program) -> None:
    """The sums of two splits differ by the patients that moved: here by one of 800."""
    data = table(800, seed=1)
    own = site_of(program, data, dealing_of(7))
    others = (
        site_of(replace(program, held_out=program.held_out + step * 2e-4), data, dealing_of(7))
        for step in range(1, 100)
    )
    moved = next(
        other
        for other in others
        if own.site.count(Part.TRAINING) - other.site.count(Part.TRAINING) == 1
    )
    assert own.site.digest == moved.site.digest
    assert own.digest != moved.digest
    assert own.digest != site_of(program, data, dealing_of(8)).digest
    assert own.digest == site_of(program, data, dealing_of(7)).digest


def test_rows_to_add_and_remove_need_consent_and_are_in_the_journal(program: Program) -> None:
    policy = permissive(program)
    policy.check_changes(program)
    updating = replace(program, stages=(update.Spec(),))
    with pytest.raises(ConsentNotGiven):
        policy.check_changes(updating)
    replace(policy, consents=("update",)).check_changes(updating)

    tables = [
        site_of(program, table(40), dealing_of(7), changes=changes)
        for changes in (
            None,
            Changes(added=table(5, seed=1)),
            Changes(added=table(6, seed=1)),
            Changes(removed=table(5, seed=1)),
        )
    ]
    assert len({each.digest for each in tables}) == 1, "what was summed before is the same"
    assert len({each.journalled for each in tables}) == 4


def test_names_from_the_session_cannot_rewrite_a_screen_or_a_policy(program: Program) -> None:
    evil = 'age\x1b[2J\x9b\u202e"]\ntrust_first_use = true #'
    age, *others = program.schema.features
    schema = replace(program.schema, features=(replace(age, name=evil), *others))
    crafted = replace(program, schema=schema)
    shown = [
        str(Disclosure.of(crafted, TERMS)),
        draft := policy_draft.draft(crafted, TERMS, dictionary=Dictionary.containing(schema)),
    ]
    with pytest.raises(ColumnForbidden) as refused:
        check(permissive(program), crafted)
    shown.append(str(refused.value))
    stream = io.StringIO()
    for event in (Disclosed(f"two\nlines {evil}"), Unpinned((evil,)), RunOpened("1", evil)):
        PlainLines(stream)(event)
    shown.append(stream.getvalue())
    for text in shown:
        assert all(letter.isprintable() or letter == "\n" for letter in text)
    policy = Policy.from_toml(draft)
    assert policy.columns[0] == evil
    assert not policy.trust_first_use
    assert "not confirmed: age" in stream.getvalue()


def test_bounded_columns_save_a_sum_and_the_disclosure_knows() -> None:
    bounded = moments.Spec()
    assert Disclosure.of(Program(SCHEMA, KERNEL, (bounded,)), TERMS).sums == 2
