"""A whole program in one process: the same numbers with and without masks, and as pooled."""

import numpy as np
import pytest
import torch

from client_sdk.simulation import simulate
from kernels import storage
from kernels.errors import EmptyTable, ProgramError, TableRefused, TooManyRows
from kernels.layer.posterior import Prediction
from kernels.model.model import Model
from kernels.rounds.columns import moments
from kernels.rounds.kernel import exact
from kernels.rounds.layer import linear, update
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.rounds.shared.held_out import TOLERANCE
from kernels.rounds.shared.judged import MARGIN
from kernels.rounds.site.site import Part, Site
from kernels.tables.row_hashes import row_keys
from tests.dealing import DEALING, dealing_of
from tests.kernels.rounds import tables

QUERIES = torch.linspace(-2, 2, 100, dtype=torch.float64).reshape(20, 5)


def predict(model: Model) -> Prediction:
    return model.posterior.predict(model.urk.features(QUERIES))


def gap(left: Model, right: Model) -> float:
    """Return the largest difference of two models' means, in predictive standard deviations."""
    one, other = predict(left), predict(right)
    return float(((one.mean - other.mean).abs() / other.variance.sqrt()).max())


def test_masked_and_unmasked_sums_give_the_same_model_to_the_last_bit() -> None:
    program = tables.program(exact.Spec(steps=2, penalties=(3.0,)))
    masked = simulate(program, tables.tables(4), DEALING)
    plain = simulate(program, tables.tables(4), DEALING, secure=False)
    assert storage.encode(masked.model) == storage.encode(plain.model)
    assert masked.sums == plain.sums == 2 + 2 * 2 + 1


@pytest.mark.full
@pytest.mark.parametrize("clients", [2, 10, 100])
def test_any_number_of_sites_gives_the_model_of_one_site_with_all_rows(clients: int) -> None:
    program = tables.program(exact.Spec(steps=15, penalties=(3.0,)))
    sites = [tables.site(4 + 400 // clients, seed=seed) for seed in range(clients)]
    federated = simulate(program, sites, DEALING, secure=False).model
    pooled = simulate(program, [tables.together(sites)], DEALING, secure=False).model
    assert gap(federated, pooled) < 1e-5


def test_a_step_about_as_good_as_the_best_held_out_one_is_kept() -> None:
    program = tables.program(exact.Spec(steps=12, learning_rate=0.3, penalties=(0.0, 3.0)))
    outcome = simulate(program, tables.tables(3), DEALING, secure=False)
    state = outcome.states[1]
    errors = [progress.held_out_error for progress in state.history]
    assert len(errors) == 2 * 12
    assert min(errors) <= state.best.error <= (1 + TOLERANCE) * min(errors) / (1 - MARGIN)
    assert errors[12 * state.best.run + state.best.step] == state.best.error
    assert torch.equal(outcome.model.weights, state.best.weights)


def test_training_improves_the_evidence() -> None:
    trained = simulate(
        tables.program(exact.Spec(steps=60, penalties=(0.1,))),
        tables.tables(3),
        DEALING,
        secure=False,
    )
    history = trained.states[1].history
    assert history[-1].evidence < history[0].evidence


def test_patience_ends_a_pass_early() -> None:
    spec = exact.Spec(steps=50, learning_rate=1.0, penalties=(3.0,), patience=2)
    outcome = simulate(tables.program(spec), tables.tables(3), DEALING, secure=False)
    assert len(outcome.states[1].history) < 50


def test_patience_counts_within_each_pass() -> None:
    spec = exact.Spec(steps=30, learning_rate=1.0, penalties=(3.0, 3.0), patience=2)
    history = (
        simulate(tables.program(spec), tables.tables(3), DEALING, secure=False).states[1].history
    )
    first, second = ([p.step for p in history if p.run == run] for run in (0, 1))
    assert first == second
    assert len(first) < 30


def test_several_penalties_need_held_out_rows() -> None:
    program = tables.program(exact.Spec(steps=2, penalties=(3.0, 30.0)), held_out=0.0)
    with pytest.raises(ProgramError, match="held-out rows"):
        simulate(program, tables.tables(3), DEALING, secure=False)


def test_a_program_can_go_on_from_an_earlier_ones_model() -> None:
    first = simulate(tables.program(), tables.tables(3), DEALING, secure=False).model
    sites = [tables.site(seed=seed) for seed in range(3)]
    changed = [Site({**site.records, Part.ADDED: site.records[Part.STOPPING]}) for site in sites]
    more = Program(tables.SCHEMA, tables.KERNEL, (update.Spec(),), 1000, held_out=0.25)
    after = simulate(more, changed, DEALING, secure=False, model=first).model
    added = sum(len(site.records[Part.ADDED]) for site in changed)
    assert after.statistics.count == first.statistics.count + added
    trained = [len(tables.updated(site).records[Part.TRAINING]) for site in changed]
    assert sum(trained) == after.statistics.count


def test_without_held_out_rows_the_last_step_is_kept() -> None:
    program = tables.program(exact.Spec(steps=3, penalties=(3.0,)), held_out=0.0)
    outcome = simulate(program, tables.tables(3), DEALING, secure=False)
    state = outcome.states[1]
    assert (state.best.step, state.best.error) == (2, None)
    assert storage.encode(restore(storage.encode(state))) == storage.encode(state)


def test_a_warm_start_continues_from_earlier_weights() -> None:
    stages = (
        moments.Spec(),
        exact.Spec(steps=3, penalties=(3.0,)),
        exact.Spec(steps=1, penalties=(3.0,)),
        linear.Spec(),
    )
    program = Program(tables.SCHEMA, tables.KERNEL, stages, max_rows=1000, held_out=0.25)
    outcome = simulate(program, tables.tables(3), DEALING, secure=False)
    first, second = outcome.states[1], outcome.states[2]
    assert torch.equal(second.start, first.best.weights)


def test_watch_sees_every_sum_and_released_numbers_are_counted() -> None:
    seen: list[str] = []
    outcome = simulate(
        tables.program(),
        tables.tables(3),
        DEALING,
        secure=False,
        watch=lambda name, _: seen.append(name),
    )
    assert seen == ["moments", "moments", "linear"]
    features = tables.KERNEL.features
    linear_numbers = features * (features + 1) // 2 + 2 * features + 2 + 1
    assert outcome.released > linear_numbers


def test_a_bad_table_or_too_many_rows_stop_before_anything_is_summed() -> None:
    sums: list[str] = []
    broken = dict(tables.table(10)) | {"age": np.full(10, 500.0)}
    with pytest.raises(TableRefused, match="age"):
        simulate(
            tables.program(), [tables.table(10), broken], DEALING, watch=lambda n, _: sums.append(n)
        )
    program = Program(tables.SCHEMA, tables.KERNEL, (moments.Spec(),), max_rows=20, held_out=0)
    with pytest.raises(TooManyRows, match="larger max_rows"):
        simulate(program, [tables.table(30)] * 3, DEALING, watch=lambda name, _: sums.append(name))
    assert sums == []
    with pytest.raises(EmptyTable, match="one table per site"):
        simulate(program, [], DEALING)


def test_parts_are_disjoint_complete_and_keep_a_patient_together() -> None:
    schema = type(tables.SCHEMA)(tables.SCHEMA.features, tables.SCHEMA.targets, patient="id")
    patients = np.repeat([f"patient {i}" for i in range(60)], 5)
    table = dict(tables.table(300)) | {"id": patients}
    site = Site.of_table(schema, table, held_out=0.4, dealing=dealing_of(3))
    parts = {part: set(records.patients or ()) for part, records in site.records.items()}
    assert sum(len(records) for records in site.records.values()) == 300
    assert set.union(*parts.values()) == set(patients)
    assert sum(len(part) for part in parts.values()) == 60
    assert 10 < len(parts[Part.STOPPING] | parts[Part.CALIBRATION]) < 40
    again = Site.of_table(
        schema, {k: v[::-1] for k, v in table.items()}, held_out=0.4, dealing=dealing_of(3)
    )
    assert {part: set(records.patients or ()) for part, records in again.records.items()} == parts


def test_a_table_exported_in_another_order_has_the_same_parts() -> None:
    table = tables.table(50)
    turned = {name: cells[::-1] for name, cells in table.items()}
    one, other = (
        Site.of_table(tables.SCHEMA, each, held_out=0.4, dealing=dealing_of(3))
        for each in (table, turned)
    )
    for part, records in one.records.items():
        assert set(row_keys(records)) == set(row_keys(other.records[part]))


def test_a_sites_repr_shows_counts_only() -> None:
    assert repr(tables.site()) == "Site(training: 30, stopping: 7, calibration: 3)"
