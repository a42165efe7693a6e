"""What every differentially private algorithm keeps, whatever the tables.

The one promise that all noise rests on: one unit more or less at a site moves no block of its
contribution further than the layout declares.
"""

import itertools
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernels import storage
from kernels.errors import StateError
from kernels.features.spec import KernelSpec
from kernels.features.urk import weight_count
from kernels.model.model import Model
from kernels.outcomes.variational import Layer
from kernels.rounds.algorithm import Algorithm, contributed
from kernels.rounds.columns import moments
from kernels.rounds.registry import restore
from kernels.rounds.site.site import Part, Site
from kernels.tables.records import Records
from kernels.tables.schema import Schema
from privacy.encoding import Encoding
from privacy.scales import integer_sensitivity
from tests.dealing import DEALING
from tests.kernels.rounds import private

FLOAT_ERROR = 1e-9
"""What privacy/scales.py adds to a sensitivity for float64 is more."""


@cache
def fitted(
    stages: tuple[Any, ...], held_out: float, multiplier: float, how: tuple[tuple[str, Any], ...]
) -> Model:
    """Return the model after some stages, which several algorithms start from."""
    whole = private.program(*stages, **dict(how))
    sites = [
        private.site(private.table(60, seed=s, patients=25), whole.schema, held_out=held_out)
        for s in range(3)
    ]
    return private.fitted(whole, sites, multiplier=multiplier)


def hostile(state: Any, size: float) -> Any:
    """Return a state with weights, and a posterior, that no sum gives: some features overflow.

    Where a state refuses such a posterior, which it does before any row is there, its own is left.
    """
    model = state.model
    signs = torch.tensor([1.0, -1.0, 1e-3], dtype=torch.float64)
    weights = signs.repeat(weight_count(model.kernel))[: weight_count(model.kernel)] * size
    parts: dict[str, Any] = {"weights": weights}
    if model.statistics is not None:
        wide = min(size, 1e100)
        parts["statistics"] = replace(model.statistics, cross=model.statistics.cross * wide)
    wild = replace(model, **parts)
    if hasattr(state, "fittings"):
        fittings = tuple(
            replace(own, search=replace(own.search, layers=_wild(own.search.layers, size)))
            for own in state.fittings
        )
        return replace(state, model=wild, fittings=fittings)
    if getattr(state, "outcomes", ()):
        outcomes = tuple(replace(own, layers=_wild(own.layers, size)) for own in state.outcomes)
        return replace(state, model=wild, outcomes=outcomes)
    if not hasattr(state, "parameters"):
        return replace(state, model=wild)
    rest = state.parameters[len(weights) :]
    try:
        return replace(state, model=wild, parameters=torch.cat([weights, rest * size]))
    except StateError:
        return replace(state, model=wild, parameters=torch.cat([weights, rest]))


def _wild(layers: tuple[Layer, ...], size: float) -> tuple[Layer, ...]:
    """Return layers of outcomes whose means are far from any that sums give."""
    found = []
    for sign, layer in zip(itertools.cycle((1.0, -1.0)), layers, strict=False):
        far = torch.linspace(-1, 1, layer.features, dtype=torch.float64) * sign * size
        found.append(replace(layer, sums=replace(layer.sums, cross=layer.sums.cross + far)))
    return tuple(found)


class PrivateConformance:
    """Promises over tables with outliers, missing cells and patients with many rows."""

    algorithm: ClassVar[Algorithm]
    kernel: ClassVar[KernelSpec] = private.KERNEL
    before: ClassVar[tuple[Any, ...]] = private.LAYER
    """The stages that the algorithm comes after."""
    held_out: ClassVar[float] = 0.5
    examples: ClassVar[int] = 10
    derandomize: ClassVar[bool] = False
    """The same tables every time: for twins, whose failure must not be a matter of luck."""

    @abstractmethod
    def spec(self) -> Any:
        """Return the parameters to test with; few steps, and all units in every sample."""

    def site(self, whole: private.Table, schema: Schema) -> Site:
        """Return the site of a table."""
        return private.site(whole, schema, held_out=self.held_out)

    def all_states(
        self, schema: Schema, *, multiplier: float = 1.0, max_rows: int = 1000
    ) -> Sequence[Any]:
        """Return every state in which the algorithm asks for a sum, and the last one."""
        return _states_of(type(self), schema, multiplier, max_rows)

    # -- what it promises

    @pytest.mark.parametrize("schema", [private.PATIENTS, private.ROWS], ids=["patient", "row"])
    def test_every_block_has_a_sensitivity_and_room_for_noise(self, schema: Schema) -> None:
        for state in self.all_states(schema)[:-1]:
            layout = self.algorithm.layout(state)
            assert all(block.sensitivity is not None for block in layout.blocks)
            Encoding.noisy(layout, multiplier=4.0, honest=3, max_clients=100)

    @pytest.mark.parametrize("schema", [private.PATIENTS, private.ROWS], ids=["patient", "row"])
    def test_one_unit_moves_no_block_further_than_declared(self, schema: Schema) -> None:
        states = self.all_states(schema)[:-1]

        @given(
            seed=st.integers(0, 10**6),
            rows=st.integers(2, 60),
            patients=st.integers(1, 12),
            outliers=st.sampled_from([0.03, 0.1, 1.0]),
            which=st.integers(0, 10**6),
        )
        @settings(
            max_examples=self.examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            derandomize=self.derandomize,
        )
        def moves(seed: int, rows: int, patients: int, outliers: float, which: int) -> None:
            whole = private.table(rows, seed=seed, patients=patients, outliers=outliers)
            who = whole["who"] if schema.patient else list(range(rows))
            (frequent, _), *_ = Counter(who).most_common(1)
            extreme = [who[i] for name in ("stay", "cost") for i in np.argsort(whole[name])[-2:]]
            site = self.site(whole, schema)
            for unit in {who[which % rows], frequent, *extreme}:
                own = [i for i in range(rows) if who[i] == unit]
                if len(own) < rows:
                    less = self.site(private.without(whole, own), schema)
                    for state in states:
                        self._check_move(state, site, less)

        moves()

    def _check_move(self, state: Any, more: Site, less: Site) -> None:
        one = contributed(self.algorithm, state, more)
        other = contributed(self.algorithm, state, less)
        for block in self.algorithm.layout(state).blocks:
            moved = float(np.linalg.norm(np.asarray(one[block.name] - other[block.name]).ravel()))
            assert block.sensitivity is not None
            room = FLOAT_ERROR * max(1.0, float(np.abs(one[block.name]).max(initial=0.0)))
            assert moved <= block.sensitivity * (1 + FLOAT_ERROR) + room, block.name

    @pytest.mark.parametrize("size", [1e3, 1e300])
    def test_no_broadcast_makes_a_refusal_or_a_move_depend_on_the_rows(self, size: float) -> None:
        site = self.site(private.table(40, seed=8, outliers=0.3), private.ROWS)
        fewer = private.without(private.table(40, seed=8, outliers=0.3), [0])
        for state in self.all_states(private.ROWS)[:-1]:
            wild = hostile(state, size)
            layout = self.algorithm.layout(wild)
            for block in layout.blocks:
                assert np.isfinite(contributed(self.algorithm, wild, site)[block.name]).all()
            self._check_move(wild, site, self.site(fewer, private.ROWS))

    @pytest.mark.parametrize("size", [1.0, 1e3, 1e300])
    @pytest.mark.parametrize("others", [0, 30])
    def test_one_poisonous_patient_moves_the_vector_by_at_most_its_sensitivity(
        self, size: float, others: int
    ) -> None:
        """Values at the bounds and states that overflow for some rows, alone and among others."""
        schema = private.PATIENTS
        poison = {
            "age": [120.0, 0.0, 120.0, 0.0],
            "lactate": [1000.0, 0.0, np.nan, 1000.0],
            "ward": [None, "surgical", "medical", None],
            "stay": [400.0, -50.0, 400.0, -50.0],
            "cost": [1e6, 0.0, 1e6, 1e6],
            "who": ["poison"] * 4,
        }
        rest = private.table(max(others, 1), seed=5)
        whole = {name: [*rest[name][:others], *cells] for name, cells in poison.items()}
        more = self.site(whole, schema)
        none = Site({part: Records.none(schema) for part in Part}, dealing=DEALING)
        less = self.site(rest, schema) if others else none
        for state in self.all_states(schema)[:-1]:
            wild = hostile(state, size) if size > 1 else state
            layout = self.algorithm.layout(wild)
            encoding = Encoding.noisy(layout, multiplier=1.0, honest=3, max_clients=3)
            zero = np.zeros(layout.length, dtype="<i8")
            one, other = (
                encoding.encode(contributed(self.algorithm, wild, site), noise=zero).view("<i8")
                for site in (more, less)
            )
            start = 0
            for block, bits in zip(layout.blocks, encoding.fractional_bits, strict=True):
                ours = slice(start, start + block.length)
                start += block.length
                moved = np.linalg.norm((one[ours] - other[ours]).astype(np.float64))
                assert moved <= integer_sensitivity(block, bits), block.name

    def test_no_table_is_refused_for_what_is_in_it(self) -> None:
        schema = private.PATIENTS
        extremes = [
            private.table(1, seed=1),
            private.table(200, seed=2, outliers=1.0),
            {**private.table(50, seed=3), "stay": [400.0] * 50, "age": [0.0] * 50},
            {**private.table(90, seed=4), "who": ["the same"] * 90},
        ]
        # More rows than max_rows: without noise that is an error, here the sum is clipped.
        for state in self.all_states(schema, max_rows=10)[:-1]:
            encoding = Encoding.noisy(
                self.algorithm.layout(state), multiplier=1.0, honest=3, max_clients=3
            )
            zero = np.zeros(encoding.layout.length, dtype="<i8")
            for whole in extremes:
                site = self.site(whole, schema)
                encoding.encode(contributed(self.algorithm, state, site), noise=zero)

    @pytest.mark.parametrize("multiplier", [1e-3, 1e3])
    def test_any_noise_leaves_a_valid_model(self, multiplier: float) -> None:
        last = self.all_states(private.PATIENTS, multiplier=multiplier)[-1]
        assert self.algorithm.finished(last)
        stored = storage.encode(last)
        assert storage.encode(restore(stored)) == stored
        model = restore(stored).model
        if model.statistics is not None:
            same = restore(storage.encode(last.model)).posterior
            assert torch.equal(same.weights, last.model.posterior.weights)
            assert bool(same.weights.isfinite().all())
        if model.standardiser is not None:
            assert all(math.isfinite(each.scale) for each in model.standardiser.targets)


@cache
def _states_of(
    kind: type[PrivateConformance], schema: Schema, multiplier: float, max_rows: int
) -> Sequence[Any]:
    """Run an algorithm once for all promises that only look at its states, which are frozen."""
    promises = kind()
    how = {"schema": schema, "kernel": promises.kernel, "max_rows": max_rows}
    private.program(*promises.before, promises.spec(), **how)
    sites = [promises.site(private.table(60, seed=s, patients=25), schema) for s in range(3)]
    model = private.program(moments.Spec(), **how).start()
    if promises.before:
        model = fitted(promises.before, promises.held_out, multiplier, tuple(how.items()))
    return private.states(promises.algorithm, promises.spec(), model, sites, multiplier=multiplier)
