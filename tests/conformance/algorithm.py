"""What every federated algorithm keeps; `tests/rounds` has a class for each that inherits this.

A subclass says which algorithm, with which parameters and over which model it starts; it inherits
`AdditiveOverRows`, `EqualToPooled` and `ChosenByHeldOutError` too where the algorithm claims to be
that.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from kernels import storage
from kernels.errors import StateError, StatisticsError
from kernels.layer.posterior import Spectrum
from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.rounds.algorithm import Algorithm, rehearsed
from kernels.rounds.declaration import Before
from kernels.rounds.registry import installed, restore
from kernels.rounds.shared.held_out import TOLERANCE
from kernels.rounds.shared.judged import MARGIN
from kernels.rounds.site.site import Part, Site
from kernels.tables.made_up import made_up_rows
from kernels.tables.records import Records
from privacy.encoding import Encoding
from privacy.layout import Block, Layout, SecureTotal
from tests.dealing import DEALING
from tests.kernels.rounds import tables
from tests.kernels.rounds.sums import add_plainly


class AlgorithmConformance:
    """Promises of an algorithm, over a few small sites with different case mixes."""

    algorithm: ClassVar[Algorithm]
    tolerance: ClassVar[float] = 1e-8

    @abstractmethod
    def spec(self) -> Any:
        """Return the parameters to test with; few steps."""

    def model(self, sites: list[Site]) -> Model:
        """Return the model that the algorithm starts from: by default a standardised one."""
        return tables.fitted(sites)

    def sites(self) -> list[Site]:
        """Return the sites to test with."""
        return [tables.site(seed=seed) for seed in range(3)]

    # -- the algorithm, run

    def trained(self, spec: Any, sites: Sequence[Site], model: Model) -> list[Any]:
        """Return all states of a stage with these parameters."""
        states = [self.algorithm.initial(spec, model)]
        while not self.algorithm.finished(states[-1]):
            total = self.total(states[-1], sites)
            states.append(self.algorithm.update(states[-1], total))
        return states

    def states(self) -> Sequence[Any]:
        """Return all states of which a site sees a broadcast; frozen, so all tests share them."""
        return _states_of(type(self))[:-1]

    def total(self, state: Any, sites: Sequence[Site]) -> SecureTotal:
        """Sum over sites as the service does."""
        encoding = Encoding.finest(self.algorithm.layout(state), max_clients=len(sites))
        seen = restore(storage.encode(state, broadcast=True))
        return add_plainly(encoding, [self.algorithm.contribute(seen, site) for site in sites])

    def outcome(self, sites: Sequence[Site], model: Model) -> Any:
        """Return the last state."""
        return self.trained(self.spec(), sites, model)[-1]

    # -- what it promises

    def test_it_is_installed_under_its_name_and_version(self) -> None:
        assert installed(self.algorithm.NAME, self.algorithm.VERSION) is self.algorithm

    def test_contributions_fit_their_layout_and_its_bounds(self) -> None:
        sites = self.sites()
        for state in self.states():
            layout = self.algorithm.layout(state)
            encoding = Encoding.finest(layout, max_clients=3)
            for site in sites:
                encoding.encode(self.algorithm.contribute(state, site))

    def test_the_order_of_rows_does_not_matter(self) -> None:
        sites = self.sites()
        turned = [_reversed(site) for site in sites]
        for state in self.states():
            for site, other in zip(sites, turned, strict=True):
                one = self.algorithm.contribute(state, site)
                same = self.algorithm.contribute(state, other)
                for name in one:
                    _assert_close(one[name], same[name], self.tolerance)

    def test_a_restart_after_any_sum_goes_on_to_the_same_end(self) -> None:
        sites = self.sites()
        model = self.model(sites)
        straight = self.outcome(sites, model)
        state = restore(storage.encode(self.algorithm.initial(self.spec(), model)))
        while not self.algorithm.finished(state):
            state = self.algorithm.update(state, self.total(state, sites))
            stored = storage.encode(state)
            state = restore(stored)
            assert storage.encode(state) == stored
        assert storage.encode(state) == storage.encode(straight)

    def test_a_broadcast_has_nothing_private_and_is_all_that_a_site_needs(self) -> None:
        sites = self.sites()
        for state in self.states():
            seen = restore(storage.encode(state, broadcast=True))
            assert self.algorithm.layout(seen) == self.algorithm.layout(state)
            own = self.algorithm.contribute(state, sites[0])
            theirs = self.algorithm.contribute(seen, sites[0])
            assert all(np.array_equal(own[name], theirs[name]) for name in own)

    def test_only_the_total_of_the_sum_that_was_asked_for_reaches_an_update(self) -> None:
        sites = self.sites()
        other = Encoding.finest(Layout((Block("other", (), 1.0, 1.0),)), max_clients=3)
        foreign = add_plainly(other, [{"other": np.zeros(())}] * 3)
        for state in self.states():
            with pytest.raises(StatisticsError, match="never one site's"):
                self.algorithm.update(state, self.algorithm.contribute(state, sites[0]))
            with pytest.raises(StatisticsError, match="another sum"):
                self.algorithm.update(state, foreign)

    def test_a_site_with_training_rows_alone_can_take_part(self) -> None:
        sites = self.sites()
        alone = Site({Part.TRAINING: sites[0].records[Part.TRAINING]})
        for state in self.states():
            encoding = Encoding.finest(self.algorithm.layout(state), max_clients=3)
            encoding.encode(self.algorithm.contribute(state, alone))

    def test_earlier_work_at_a_site_never_shows(self) -> None:
        for state in self.states():
            kernel = replace(state.model.kernel, seed=state.model.kernel.seed + 1)
            fresh = self.sites()[0]
            self.algorithm.contribute(state, fresh)
            moved = replace(state, model=replace(state.model, kernel=kernel))
            one = self.algorithm.contribute(moved, fresh)
            same = self.algorithm.contribute(moved, self.sites()[0])
            assert all(np.array_equal(one[name], same[name]) for name in one)

    def test_contributing_changes_nothing(self) -> None:
        sites = self.sites()
        for state in self.states():
            before = storage.encode(state)
            first = self.algorithm.contribute(state, sites[0])
            second = self.algorithm.contribute(state, sites[0])
            assert storage.encode(state) == before
            assert all(np.array_equal(first[name], second[name]) for name in first)

    def test_a_site_without_rows_can_take_part(self) -> None:
        sites = self.sites()
        nothing = Site(
            {part: _without_rows(own) for part, own in sites[0].records.items()}, dealing=DEALING
        )
        for state in self.states():
            encoding = Encoding.finest(self.algorithm.layout(state), max_clients=3)
            encoding.encode(self.algorithm.contribute(state, nothing))

    def test_parts_of_no_one_and_many_rows_are_answered_alike(self) -> None:
        sites = self.sites()
        for state in self.states():
            ready = rehearsed(self.algorithm, state)
            encoding = Encoding.finest(self.algorithm.layout(state), max_clients=3)
            for rows in (0, 1, 30):
                own = made_up_rows(state.model.schema, rows, state.model.standardiser)
                for part in self._reads(sites):
                    parts = {**sites[0].parts, part: own}
                    encoding.encode(ready.contributed(Site(parts, dealing=DEALING)))

    def _reads(self, sites: list[Site]) -> frozenset[Part]:
        before = Before(model=self.model(sites), students=frozenset())
        return self.algorithm.declare(self.spec(), before).reads

    def test_damaged_states_are_refused_by_name(self) -> None:
        sites = self.sites()
        data = storage.encode(self.algorithm.initial(self.spec(), self.model(sites)))
        for damaged in (b"", data[:-1], data[: len(data) // 2], b"\xff" * 64):
            with pytest.raises(StateError):
                restore(damaged)


class AdditiveOverRows(AlgorithmConformance):
    """Contributions of two sites add up to that of both sites' rows at one site."""

    def test_contributions_are_additive(self) -> None:
        sites = self.sites()
        both = tables.together(sites[:2])
        for state in self.states():
            parts = [self.algorithm.contribute(state, site) for site in sites[:2]]
            whole = self.algorithm.contribute(state, both)
            for block in self.algorithm.layout(state).blocks:
                added = parts[0][block.name] + parts[1][block.name]
                _assert_close(added, whole[block.name], self.tolerance)


class EqualToPooled(AlgorithmConformance):
    """Many sites give what one site with all rows gives, to rounding."""

    def test_many_sites_give_what_one_site_with_all_rows_gives(self) -> None:
        sites = self.sites()
        model = self.model(sites)
        federated = self.outcome(sites, model)
        pooled = self.outcome([tables.together(sites)], model)
        _assert_same_data(federated.model, pooled.model, self.tolerance)


class ChosenByHeldOutError(AlgorithmConformance):
    """Phase 1, in whichever way: rows kept for stopping say which θ is kept and when to stop.

    Its parameters have a `patience`, its last state a `history` and the `best` θ of it.
    """

    @abstractmethod
    def harmful(self, *, patience: int) -> Any:
        """Return parameters with which training begins well and then does harm."""

    def harmed(self, *, patience: int) -> Sequence[Any]:
        """Return all states of such a stage."""
        return _harmed_by(type(self), patience)

    def test_the_history_has_the_error_of_every_theta_on_the_held_out_rows_of_all_sites(
        self,
    ) -> None:
        sites = self.sites()
        states = self.harmed(patience=0)
        judged = [
            before for before, after in pairwise(states) if len(after.history) > len(before.history)
        ]
        errors = [progress.held_out_error for progress in states[-1].history]
        assert len(judged) == len(errors) > 2
        expected = [_held_out_error(state.model, sites) for state in judged]
        # The grids of exact training are as fine as this.
        assert errors == pytest.approx(expected, rel=1e-3)

    def test_the_last_theta_about_as_good_as_the_best_is_kept(self) -> None:
        sites = self.sites()
        last = self.harmed(patience=0)[-1]
        passes: dict[int, list[float]] = {}
        for progress in last.history:
            passes.setdefault(progress.run, []).append(progress.held_out_error)
        kept = [
            [error for error in errors if error <= (1 + TOLERANCE) * min(errors)][-1]
            for errors in passes.values()
        ]
        assert last.best.error == pytest.approx(min(kept), rel=MARGIN)
        first, end = (last.history[place].held_out_error for place in (0, -1))
        assert last.best.error < min(first, end), "training helps, then does harm"
        assert torch.equal(last.model.weights, last.best.weights)
        # The σ and λ kept are those of this θ, too.
        assert _held_out_error(last.model, sites) == pytest.approx(last.best.error, rel=1e-3)

    def test_it_stops_when_patience_is_over(self) -> None:
        long, short = (self.harmed(patience=patience)[-1].history for patience in (0, 1))
        assert 1 < len(short) < len(long)

    def test_it_goes_on_from_the_weights_that_it_is_given(self) -> None:
        sites = self.sites()
        model = self.model(sites)
        given = model.urk.weights.detach() * 0.9
        state = self.algorithm.initial(self.spec(), model.advanced(weights=given))
        assert torch.equal(state.model.weights, given)

    def test_what_held_out_rows_said_stays_with_the_coordinator(self) -> None:
        for state in self.harmed(patience=1):
            seen = restore(storage.encode(state, broadcast=True))
            assert seen.best is None
            assert seen.history is None


def _held_out_error(model: Model, sites: Sequence[Site]) -> float:
    """Return the mean absolute error of the linear layer of all training rows, in one place."""
    pooled = tables.together(list(sites))
    spectrum = Spectrum.of(Statistics.of_table(model.urk, *pooled.table(Part.TRAINING, model)))
    x, y = pooled.table(Part.STOPPING, model)
    with torch.no_grad():
        weights = spectrum.posterior_weights(model.hyperparameters)
        return (model.urk.features(x) @ weights - y).abs().sum().item() / len(y)


def _assert_close(left: Any, right: Any, tolerance: float) -> None:
    scale = max(1.0, float(np.max(np.abs(right), initial=0.0)))
    assert np.max(np.abs(np.asarray(left) - np.asarray(right)), initial=0.0) <= tolerance * scale


def _assert_same_data(left: Any, right: Any, tolerance: float) -> None:
    for name in ("weights",):
        one, other = getattr(left, name), getattr(right, name)
        if one is not None:
            _assert_close(one.numpy(), other.numpy(), tolerance)
    if left.statistics is not None:
        for name in ("scatter", "cross", "target_squares"):
            _assert_close(
                getattr(left.statistics, name).numpy(),
                getattr(right.statistics, name).numpy(),
                tolerance,
            )
        assert left.statistics.count == right.statistics.count
    if left.other is not None or right.other is not None:
        assert left.second.share == right.second.share
        _assert_same_data(left.other, right.other, tolerance)
    if left.outcomes is not None:
        for one, other in zip(left.outcomes, right.outcomes, strict=True):
            assert one.dispersion == other.dispersion
            for layer, same in zip(one.layers, other.layers, strict=True):
                assert (layer.prior_variance, layer.ratio) == (same.prior_variance, same.ratio)
                _assert_close(layer.sums.scatter.numpy(), same.sums.scatter.numpy(), tolerance)
                _assert_close(layer.sums.cross.numpy(), same.sums.cross.numpy(), tolerance)
    if left.hyperparameters is not None:
        for name in ("noise_variance", "prior_variance"):
            _assert_close(
                getattr(left.hyperparameters, name).numpy(),
                getattr(right.hyperparameters, name).numpy(),
                max(tolerance, 1e-6),
            )
    if left.standardiser is not None:
        for one, other in zip(left.standardiser.numeric, right.standardiser.numeric, strict=True):
            _assert_close([one.mean, one.scale], [other.mean, other.scale], tolerance)


def _without_rows(records: Records) -> Records:
    return records.take(torch.zeros(len(records), dtype=torch.bool))


def _reversed(site: Site) -> Site:
    def turned(part: Part) -> Any:
        records = site.records[part]
        return type(records)(
            records.schema,
            *(
                value.flip(0)
                for value in (records.numeric, records.missing, records.outside, records.levels)
            ),
            None if records.targets is None else records.targets.flip(0),
            None if records.outcomes is None else records.outcomes.flip(0),
            None if records.patients is None else records.patients[::-1],
        )

    parts = {part: turned(part) for part in site.records}
    return Site(parts, dealing=DEALING)


@cache
def _states_of(kind: type[AlgorithmConformance]) -> tuple[Any, ...]:
    promises = kind()
    sites = promises.sites()
    return tuple(promises.trained(promises.spec(), sites, promises.model(sites)))


@cache
def _harmed_by(kind: type[ChosenByHeldOutError], patience: int) -> tuple[Any, ...]:
    promises = kind()
    sites = promises.sites()
    return tuple(
        promises.trained(promises.harmful(patience=patience), sites, promises.model(sites))
    )
