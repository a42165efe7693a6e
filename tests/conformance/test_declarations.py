"""Every algorithm keeps to what it declares of itself, whatever its parameters.

Consent and planned noise come from these declarations, so each is held to a run: at most so many
sums of at most so many numbers, exactly the parts of the rows that it names, exactly what it says
that it needs and leaves in the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernels import storage
from kernels.ensembles.distilled import Method
from kernels.errors import ComputationFailed, NotFitted
from kernels.features.spec import KernelSpec
from kernels.model.model import Model
from kernels.rounds.algorithm import Algorithm
from kernels.rounds.columns import moments
from kernels.rounds.compared import ep_mcmc, fedbe, fedpa, fedyogi, one_shot
from kernels.rounds.declaration import Declaration, Made, PublicRows
from kernels.rounds.ensemble import beta, predictive
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import distillation, elbo, exact, fedavg, private_exact, search
from kernels.rounds.layer import completion, linear, linear_two_sums, outcomes, refinement, update
from kernels.rounds.plan import declared, planned
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS, algorithm_of, restore
from kernels.rounds.shared.public_set import columns_of, digest_of
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE
from kernels.tables.schema import Schema
from tests.dealing import DEALING
from tests.kernels.rounds import outcomes as small
from tests.kernels.rounds import private, sums, tables
from tests.kernels.rounds.kernel import test_blend as two_kernels
from tests.kernels.rounds.kernel.test_search import CHOICES, RECIPES

_FEATURES = ("age", "lactate", "ward")
_UNLABELLED = {name: own for name, own in tables.table(6, seed=77).items() if name in _FEATURES}
_NETWORK = st.fixed_dictionaries(
    {"hidden": st.sampled_from([(), (3,), (4, 2)]), "batch_rows": st.integers(4, 30)}
)
_TRAINED = st.fixed_dictionaries({"epochs": st.integers(1, 2)})
_SAMPLED = st.fixed_dictionaries(
    {"cycles": st.just(1), "cycle_epochs": st.integers(2, 3), "cycle_samples": st.just(2)}
)
_DISTILLING = st.fixed_dictionaries(
    {
        "public": st.just(columns_of(_UNLABELLED)),
        "extra_rows": st.integers(0, 3),
        "distillation_epochs": st.just(1),
    }
)
_VALIDATED = {"validate": st.booleans(), "rounds": st.integers(1, 2), "local_steps": st.just(1)}


def _of(kind: type, *parts: Any, **own: Any) -> st.SearchStrategy[Any]:
    """Return specs whose parameters come from several groups."""
    groups = st.tuples(*parts, st.fixed_dictionaries(own))
    return groups.map(lambda found: kind(**{k: v for each in found for k, v in each.items()}))


_PREDICTIVE = _of(
    predictive.Spec,
    _NETWORK,
    _SAMPLED,
    _DISTILLING,
    expert=st.sampled_from([*predictive.Expert]),
    methods=st.sets(
        st.sampled_from([each for each in Method if each is not Method.BETA]), min_size=1
    ).map(lambda found: tuple(sorted(found))),
)
_ENDS = predictive.Spec(
    public=columns_of(_UNLABELLED),
    extra_rows=2,
    hidden=(3,),
    cycles=1,
    cycle_epochs=2,
    cycle_samples=2,
    distillation_epochs=1,
)
_CALIBRATED = recalibration.Spec(min_rows=1)
_SMALL: dict[str, Any] = {"hidden": (3,), "epochs": 1}


@dataclass(frozen=True)
class Case:
    """Small parameters of an algorithm, the stages before it, and whether sums have noise."""

    specs: st.SearchStrategy[Any]
    before: tuple[Any, ...] = (moments.Spec(),)
    private: bool = False
    schema: Schema | None = None
    """By default that of the tables, whose targets are real numbers."""
    choices: tuple[KernelSpec, ...] = ()
    """The kernels that the program chooses from; by default it has one."""
    blended: bool = False
    """Whether the tables are those of two kernels that are mixed."""


_MIXED = (moments.Spec(), two_kernels.SPEC)
_LAYER = (moments.Spec(), linear.Spec())
_NOISY = (moments.Spec(from_bounds=True),)
_FITTED = (*_LAYER, outcomes.Spec(sums=2))
_EVALUATIONS = _of(
    evaluation.Spec,
    part=st.sampled_from([Part.TRAINING, Part.STOPPING, Part.CALIBRATION]),
    recalibrated=st.booleans(),
)
CASES = {
    "moments": Case(_of(moments.Spec), ()),
    "moments with curves": Case(_of(moments.Spec, curves=st.just(True)), ()),
    "moments of outcomes with curves": Case(
        _of(moments.Spec, curves=st.just(True)), (), schema=small.MIXED
    ),
    "fedavg": Case(_of(fedavg.Spec, **_VALIDATED)),
    "distillation": Case(
        _of(
            distillation.Spec,
            public=st.just(columns_of(tables.table(6, seed=77))),
            distillation_steps=st.just(1),
            alphas=st.just((10.0,)),
            **_VALIDATED,
        )
    ),
    "exact": Case(
        _of(exact.Spec, steps=st.integers(1, 3), penalties=st.sampled_from([(3.0,), (1.0, 9.0)]))
    ),
    "linear": Case(_of(linear.Spec, refit=st.booleans())),
    "search": Case(
        _of(search.Spec, recipes=st.sampled_from([RECIPES, RECIPES[:2]])), choices=CHOICES
    ),
    "search with outcomes": Case(
        _of(search.Spec, recipes=st.just(RECIPES[:2])), schema=small.MIXED, choices=CHOICES
    ),
    "linear of two kernels": Case(_of(linear.Spec), _MIXED, blended=True),
    "completion of two kernels": Case(_of(completion.Spec), (*_MIXED, linear.Spec()), blended=True),
    "update of two kernels": Case(
        _of(update.Spec), (*_MIXED, linear.Spec(), completion.Spec()), blended=True
    ),
    "completion": Case(_of(completion.Spec), _LAYER),
    "completion with outcomes": Case(_of(completion.Spec), _FITTED, schema=small.MIXED),
    "linear_two_sums": Case(_of(linear_two_sums.Spec)),
    "update": Case(_of(update.Spec, refit=st.booleans()), (*_LAYER, completion.Spec())),
    "outcomes": Case(_of(outcomes.Spec, sums=st.integers(1, 3)), schema=small.MIXED),
    "outcomes alone": Case(_of(outcomes.Spec, sums=st.just(2)), schema=small.ALONE),
    "fedavg with outcomes": Case(_of(fedavg.Spec, **_VALIDATED), schema=small.MIXED),
    "exact with outcomes": Case(
        _of(exact.Spec, steps=st.integers(1, 2), penalties=st.just((3.0,))), schema=small.MIXED
    ),
    "exact with outcomes alone": Case(
        _of(exact.Spec, steps=st.just(2), penalties=st.just((3.0,))), schema=small.ALONE
    ),
    "update with outcomes": Case(
        _of(update.Spec, refit=st.booleans()), (*_FITTED, completion.Spec()), schema=small.MIXED
    ),
    "update with outcomes alone": Case(
        _of(update.Spec),
        (moments.Spec(), outcomes.Spec(sums=2), completion.Spec()),
        schema=small.ALONE,
    ),
    "predictive": Case(_PREDICTIVE, _LAYER),
    "beta": Case(
        _of(beta.Spec, sums=st.integers(1, 2), points=st.integers(3, 5)), (*_LAYER, _ENDS)
    ),
    "fedpa": Case(_of(fedpa.Spec, _NETWORK, _TRAINED, rounds=st.integers(1, 2))),
    "fedyogi": Case(_of(fedyogi.Spec, _NETWORK, _TRAINED, rounds=st.integers(1, 2))),
    "ep_mcmc": Case(_of(ep_mcmc.Spec, _NETWORK, _SAMPLED)),
    "fedbe": Case(_of(fedbe.Spec, _NETWORK, _TRAINED, _DISTILLING, draws=st.integers(0, 2))),
    "one_shot": Case(_of(one_shot.Spec, _NETWORK, _TRAINED, _DISTILLING)),
    "recalibration": Case(_of(recalibration.Spec, min_rows=st.just(1)), _LAYER),
    "evaluation": Case(_EVALUATIONS, (*_LAYER, _CALIBRATED)),
    "evaluation of students": Case(_EVALUATIONS, (*_LAYER, _ENDS, _CALIBRATED)),
    "evaluation of networks and students": Case(
        _EVALUATIONS, (*_LAYER, fedpa.Spec(**_SMALL, rounds=1), _ENDS, _CALIBRATED)
    ),
    "evaluation of networks alone": Case(
        _of(evaluation.Spec, recalibrated=st.just(False)),
        (moments.Spec(), fedpa.Spec(**_SMALL, rounds=1), fedyogi.Spec(**_SMALL, rounds=1)),
    ),
    "private moments": Case(
        _of(moments.Spec, from_bounds=st.booleans(), curves=st.booleans()), (), private=True
    ),
    "private_exact": Case(_of(private_exact.Spec, steps=st.integers(1, 2)), _NOISY, private=True),
    "elbo": Case(
        _of(elbo.Spec, steps=st.integers(1, 2), sampling_rate=st.sampled_from([0.3, 1.0])),
        _NOISY,
        private=True,
    ),
    "private linear": Case(_of(linear.Spec), _NOISY, private=True),
    "refinement": Case(_of(refinement.Spec), private.LAYER, private=True),
    "refinement of a trained kernel": Case(
        _of(refinement.Spec), (*_NOISY, elbo.Spec(steps=1)), private=True
    ),
    "private recalibration": Case(
        _of(recalibration.Spec, min_rows=st.just(1)), private.LAYER, private=True
    ),
    "private evaluation": Case(_EVALUATIONS, (*private.LAYER, _CALIBRATED), private=True),
    "private update": Case(_of(update.Spec), private.LAYER, private=True),
    "private outcomes": Case(
        _of(outcomes.Spec, private_sums=st.integers(1, 2)),
        _NOISY,
        private=True,
        schema=private.MIXED,
    ),
    "private update with outcomes": Case(
        _of(update.Spec),
        (*private.LAYER, outcomes.Spec(private_sums=1)),
        private=True,
        schema=private.MIXED,
    ),
}


class Watched(dict[Part, Any]):
    """The parts of a site, which notes those that were looked at."""

    def __init__(self, parts: Mapping[Part, Any]) -> None:
        super().__init__(parts)
        self.read: set[Part] = set()

    def get(self, part: Part, default: Any = None) -> Any:
        self.read.add(part)
        return super().get(part, default)

    def __getitem__(self, part: Part) -> Any:
        self.read.add(part)
        return super().__getitem__(part)


def _site(case: Case, seed: int) -> Site:
    if case.blended:
        own = two_kernels.site(60, seed)
    elif case.private:
        own = private.site(private.table(40, seed=seed), case.schema or private.PATIENTS)
    elif case.schema is None:
        own = tables.site(30, seed=seed, held_out=0.4)
    else:
        own = small.site(60, seed=seed, schema=case.schema, held_out=0.4)
    records = own.records[Part.CALIBRATION]
    few = {Part.ADDED: records.between(slice(0, 3))}
    if not case.private:
        few[Part.REMOVED] = own.records[Part.TRAINING].between(slice(0, 2))
        few[Part.ADDED_HELD_OUT] = records.between(slice(3, 5))
        few[Part.REMOVED_HELD_OUT] = own.records[Part.STOPPING].between(slice(0, 4))
    site = Site({**own.parts, **few}, digest=bytes([seed]) * 32, dealing=DEALING)
    site.parts = Watched(site.parts)
    return site


def _program(case: Case, spec: Any) -> Program:
    if case.private:
        return private.program(*case.before, spec, schema=case.schema or private.PATIENTS)
    if case.blended:
        return replace(two_kernels.PROGRAM, stages=(*case.before, spec))
    schema = case.schema or tables.SCHEMA
    kernel = case.choices[0] if case.choices else tables.KERNEL
    stages = (*case.before, spec)
    return Program(schema, kernel, stages, max_rows=1000, held_out=0.4, choices=case.choices)


def _states(
    case: Case, algorithm: Any, spec: Any, model: Model, sites: Sequence[Site]
) -> list[Any]:
    if case.private:
        return private.states(algorithm, spec, model, sites)
    found = [algorithm.initial(spec, model)]
    while not algorithm.finished(found[-1]):
        found.append(sums.after_one(algorithm, found[-1], sites))
    return found


@cache
def _model_before(name: str) -> Model:
    case = CASES[name]
    sites = [_site(case, seed) for seed in range(3)]
    if not case.before:
        return _program(case, moments.Spec()).start()
    whole = _program(replace(case, before=case.before[:-1]), case.before[-1])
    model = whole.start()
    for own, spec in whole.algorithms():
        model = _states(case, own, spec, model, sites)[-1].model
    return model


def hold_to_its_declaration(name: str, spec: Any, algorithm: Algorithm, own: Declaration) -> None:
    """Run a stage, and compare all that can be seen of it with what was declared."""
    case, model = CASES[name], _model_before(name)
    sites = [_site(case, seed) for seed in range(3)]
    states = _states(case, algorithm, spec, model, sites)
    assert len(states) - 1 <= own.sums
    lengths = [algorithm.layout(state).length for state in states[:-1]]
    assert max(lengths, default=0) <= own.numbers
    assert sum(lengths) <= own.numbers_in_all
    if lengths:
        assert set().union(*(site.parts.read for site in sites)) == own.reads
    if not case.private:
        _check_row_count(algorithm, own, states, sites)
    assert _summed_together(algorithm, states, sites) <= own.summed_together
    assert frozenset().union(*own.summed_together) <= own.reads
    for state in states:
        assert storage.encode(restore(storage.encode(state))) == storage.encode(state)
    after = states[-1].model
    assert own.makes >= algorithm.MAKES
    assert own.needs >= algorithm.NEEDS
    assert all(_has(after, each) for each in own.makes)
    if not own.makes:
        assert storage.encode(after) == storage.encode(model)
    stored = max(0, _numbers(after) - _numbers(model))
    assert min(stored, sum(lengths)) <= own.leaves
    assert _included(states, algorithm) == own.includes
    taught = [] if after.distilled is None else [*after.distilled.students]
    assert {each.method for each in (*taught, *(after.networks or ()))} == own.students
    assert own.sampling_rate == getattr(spec, "sampling_rate", 1.0)
    assert own.public_set == (digest_of(spec.public) if hasattr(spec, "public") else None)
    assert (own.public_set is None) == (own.public_rows is PublicRows.NONE)
    assert own.local_passes == _passes(spec)
    assert own.rate_times_steps == pytest.approx(_rate_times_steps(spec))
    for missing in own.needs:
        with pytest.raises((NotFitted, ComputationFailed)):
            _states(case, algorithm, spec, _without(model, missing), sites)


def _check_row_count(
    algorithm: Algorithm, own: Declaration, states: Sequence[Any], sites: Sequence[Site]
) -> None:
    """Compare the declared block with the number of training rows of all sites."""
    true, counted = sum(site.count(Part.TRAINING) for site in sites), set()
    for state in states[:-1]:
        blocks = [algorithm.contribute(state, site) for site in sites]
        totals = {name: sum(each[name].sum() for each in blocks) for name in blocks[0]}
        counted |= {name for name, total in totals.items() if name == "rows" and total == true}
    assert counted == ({own.row_count} if own.row_count else set())


def _summed_together(
    algorithm: Algorithm, states: Sequence[Any], sites: Sequence[Site]
) -> set[frozenset[Part]]:
    """Return the sets of parts whose rows are together in a matrix of products, of any sum."""
    found = set()
    for state in states[:-1]:
        products = [block.name for block in algorithm.layout(state).blocks if block.symmetric]
        for site in sites if products else ():
            alone = {
                part: algorithm.contribute(
                    state, Site({part: rows}, digest=bytes(32), dealing=DEALING)
                )
                for part, rows in site.parts.items()
            }
            for name in products:
                found.add(frozenset(part for part, own in alone.items() if own[name].any()))
    return found - {frozenset()}


def _numbers(part: object) -> int:
    """Count the numbers that a model stores; of a symmetric matrix, each pair once."""
    if isinstance(part, torch.Tensor):
        square = part.ndim == 2 and part.shape[0] == part.shape[1]
        if square and torch.equal(part, part.T):
            return len(part) * (len(part) + 1) // 2
        return part.numel()
    if isinstance(part, KernelSpec | Schema):
        return 0
    if is_dataclass(part):
        own = (getattr(part, each.name) for each in fields(part) if each.metadata != PRIVATE)
        return sum(map(_numbers, own))
    if isinstance(part, tuple):
        return sum(map(_numbers, part))
    return int(isinstance(part, float))


def _included(part: object, outer: Algorithm) -> set[str]:
    """Return the other algorithms whose states are within a part of a state."""
    if isinstance(part, tuple | list):
        return set().union(*(_included(each, outer) for each in part))
    if not is_dataclass(part):
        return set()
    own = {name for name, each in ALGORITHMS.items() if type(part) is each.State}
    within = (_included(getattr(part, each.name), outer) for each in fields(part))
    return (own - {outer.NAME}).union(*within)


def _passes(spec: Any) -> int:
    """Return how often a site trains on its rows between two sums, by the parameters' names."""
    if getattr(spec, "expert", None) is predictive.Expert.LINEAR:
        return 0
    sampled = getattr(spec, "cycles", 0) * getattr(spec, "cycle_epochs", 0)
    return int(getattr(spec, "local_steps", 0) or getattr(spec, "epochs", 0) or sampled)


def _rate_times_steps(spec: Any) -> float:
    if hasattr(spec, "recipes"):
        return max(_rate_times_steps(own) for own in spec.recipes)
    rate = getattr(spec, "learning_rate", getattr(spec, "step_size", 0.0))
    times = len(getattr(spec, "penalties", ())) or len(getattr(spec, "alphas", ())) or 1
    if hasattr(spec, "steps"):
        return float(rate * spec.steps * times)
    return float(rate * _passes(spec) * getattr(spec, "rounds", 1) * times)


_PARTS_MADE = {
    Made.STANDARDISER: ("standardiser",),
    Made.KERNEL: ("weights",),
    Made.CENTRE: ("centre", "statistics"),
    Made.LAYER: ("statistics", "hyperparameters"),
    Made.OUTCOMES: ("outcomes",),
    Made.STUDENTS: ("distilled",),
    Made.NETWORKS: ("networks",),
    Made.RECALIBRATION: ("recalibration",),
    Made.SCORES: ("scores",),
    Made.COMPLETION: ("withheld",),
    Made.CHOICE: (),
}


def _has(model: Model, made: Made) -> bool:
    if made is Made.CHOICE:
        return not model.choices
    there = [getattr(model, name) is not None for name in _PARTS_MADE[made]]
    return any(there) if made is Made.CENTRE else all(there)


def _without(model: Model, made: Made) -> Model:
    # Layers without held-out rows, or of a second kernel, are never there without the layers.
    return replace(model, withheld=None, second=None, **dict.fromkeys(_PARTS_MADE[made]))


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=3, derandomize=True, deadline=None, phases=[Phase.generate])
@given(data=st.data())
def test_an_algorithm_keeps_to_what_it_declares(name: str, data: st.DataObject) -> None:
    spec = data.draw(CASES[name].specs)
    program = _program(CASES[name], spec)
    hold_to_its_declaration(name, spec, algorithm_of(spec), declared(program)[-1])
    if CASES[name].private:
        assert planned(program)[-1].sums == declared(program)[-1].sums


def test_every_installed_algorithm_is_held_to_its_declaration() -> None:
    held = {algorithm_of(_example(case.specs)).NAME for case in CASES.values()}
    assert held == set(ALGORITHMS)


def _example(specs: st.SearchStrategy[Any]) -> Any:
    found: list[Any] = []

    @settings(max_examples=1, derandomize=True, database=None)
    @given(specs)
    def first(spec: Any) -> None:
        found.append(spec)

    first()
    return found[0]


@pytest.mark.parametrize(
    "change",
    [
        {"sums": 3},
        {"numbers": 10},
        {"numbers_in_all": 100},
        {"leaves": 3},
        {"row_count": "target_squares"},
        {"local_passes": 1},
        {"rate_times_steps": 0.0},
        {"public_set": "0" * 64},
        {"reads": frozenset({Part.TRAINING})},
        {"makes": frozenset({Made.KERNEL, Made.LAYER})},
        {"needs": frozenset({Made.STANDARDISER, Made.SCORES})},
        {"students": frozenset({Method.PRODUCT})},
        {"sampling_rate": 0.5},
        {"includes": frozenset({"linear"})},
        {"summed_together": frozenset()},
        {"summed_together": frozenset({frozenset({Part.TRAINING, Part.STOPPING})})},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_declaration_that_is_not_kept_is_noticed(change: dict[str, Any]) -> None:
    spec = exact.Spec(steps=2, penalties=(3.0,))
    honest = declared(_program(CASES["exact"], spec))[-1]
    hold_to_its_declaration("exact", spec, exact, honest)
    own = replace(honest, **change)
    twin: Any = SimpleNamespace(**{**vars(exact), "MAKES": own.makes})
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        hold_to_its_declaration("exact", spec, twin, own)


def test_a_forgotten_part_of_a_declaration_is_an_error_and_not_a_default() -> None:
    complete = vars(declared(_program(CASES["exact"], exact.Spec()))[-1])
    for name in complete:
        with pytest.raises(TypeError, match=name):
            Declaration(**{each: own for each, own in complete.items() if each != name})
