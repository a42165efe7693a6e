"""Plain words: every stage and metric has a name, trouble looks like trouble, results are said."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from kernels.rounds.kernel import distillation, exact, private_exact
from kernels.rounds.registry import ALGORITHMS
from kernels.rounds.run_kinds import Kind
from kernels.rounds.shared import judged
from service.page import learning
from service.page.plain_words import RUN_KINDS, STAGES, metric_name
from service.page.results import results
from service.page.shown_models import ShownModel
from service.page.standing import standing
from service.sessions.members import MemberRow
from tests.kernels.rounds import artifacts, every_kind

COUNTERS = {"run", "step", "round"}


def test_every_algorithm_every_kind_of_run_and_every_metric_has_words() -> None:
    assert set(STAGES) == set(ALGORITHMS)
    assert set(RUN_KINDS) == {kind.value for kind in Kind}
    told = (judged.Progress, exact.Progress, distillation.Progress, private_exact.Progress)
    for name in {field.name for own in told for field in fields(own)} - COUNTERS:
        assert metric_name(name).axis != name.replace("_", " "), name


def steps(*values: float, name: str = "evidence", run: int = 0) -> list[dict[str, Any]]:
    return [
        {"stage": 1, "algorithm": "exact", "sum": i, "run": run, "step": i, name: value}
        for i, value in enumerate(values)
    ]


@pytest.mark.parametrize("values", [(1.0, 2.0), (1.0, 0.5, 9.0), (0.1, math.nan), (-3.0, -2.0)])
def test_a_loss_that_rises_above_its_start_diverges(values: tuple[float, ...]) -> None:
    (curve,) = learning.curves(steps(*values))
    assert curve.diverges
    assert "Loss in “Train the kernel" in curve.warning
    assert 'class="chart diverging"' in curve.plot


@pytest.mark.parametrize("values", [(1.0,), (1.0, 0.3), (1.0, 0.3, 0.6), (-3.0, -3.1, -3.0)])
def test_a_loss_that_falls_or_falls_again_a_little_does_not(values: tuple[float, ...]) -> None:
    (curve,) = learning.curves(steps(*values))
    assert not curve.diverges
    assert learning.warnings([curve]) == []


def test_one_pass_that_diverges_is_enough_and_a_gradient_is_no_loss() -> None:
    told = steps(1.0, 0.5) + steps(1.0, 5.0, run=1)
    assert learning.warnings(learning.curves(told))
    assert not learning.warnings(learning.curves(steps(1.0, 9.0, name="gradient_norm")))


def test_a_result_is_a_sentence_with_its_unit_and_what_is_wrong_with_it() -> None:
    card = artifacts.artifact().card
    assert card.evaluation is not None
    scales = card.standardiser.targets
    stay, _ = results(card.evaluation, card.schema.real, (), scales)
    assert stay.headline.startswith("off by ")
    assert " d on average" in stay.headline
    assert "always predicting the mean would be off by" in stay.notes[0]
    assert "90 % intervals contain" in stay.notes[1]


def test_a_target_without_a_unit_has_none_printed() -> None:
    card = artifacts.artifact().card
    assert card.evaluation is not None
    plain = tuple(replace(each, unit="1") for each in card.schema.real)
    schema = replace(card.schema, targets=plain)
    model = ShownModel(
        id="",
        name="",
        aliases=(),
        created_at=0.0,
        session_id="",
        run=None,
        parent=None,
        signers=(),
        keys=frozenset(),
        members_only=False,
        schema=schema,
        evaluation=card.evaluation,
    )
    own = card.evaluation.recalibrated or card.evaluation.gaussian
    assert [score[1] for score in model.scores] == [f"{each.rmse:.4g}" for each in own]


def test_results_of_outcomes_are_in_words() -> None:
    card = every_kind.judged().card
    assert card.evaluation is not None
    said = {
        own.target: own.headline
        for own in results(card.evaluation, card.schema.real, card.schema.outcomes, None)
    }
    assert "of pairs in the right order" in said["readmitted"]
    assert "of pairs in the right order" in said["days"]
    assert "right for" in said["discharged"]
    assert "visits on average" in said["visits"]


def test_a_model_that_is_no_better_than_the_mean_or_too_sure_looks_like_trouble() -> None:
    card = artifacts.artifact().card
    assert card.evaluation is not None
    narrow = [(0.3,) * 19] * 2
    sure = replace(card.evaluation, conformal=tuple(narrow), rows=400)
    none = [replace(each, scale=1e-3) for each in card.standardiser.targets]
    for own in results(sure, card.schema.real, (), none):
        assert "no better than always predicting the mean" in own.warnings[0]
        assert "contain 30 %" in own.warnings[1]


@dataclass
class Terms:
    min_cohort: int = 3


@dataclass
class Session:
    terms: Terms
    planned_members: int = 5


def test_before_a_run_the_page_says_what_a_person_must_do_next() -> None:
    session: Any = Session(Terms())

    def member(name: str, status: str) -> MemberRow:
        return MemberRow(name, bytes(32), status, 0.0, None)

    here = [member(f"H{n}", "approved") for n in range(3)]
    assert standing(session, [], None, ()).headline == "0 of 5 hospitals are here"
    assert standing(session, here, None, ()).headline == "Ready to train"
    waits = standing(session, [*here, member("Nord", "pending")], None, ())
    assert waits.headline == "Nord waits for your approval"
    assert "by phone" in waits.sentence
