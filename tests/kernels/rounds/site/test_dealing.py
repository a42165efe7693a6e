"""Rows are dealt by the site's secret and by whose they are, and by nothing else."""

import numpy as np
import pytest

from client_sdk.simulation import simulate
from kernels.errors import DealingError, DealingMissing
from kernels.model.model import known
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.site import Part, Site
from kernels.scores.recalibration import FOLDS
from kernels.tables.records import Records
from kernels.tables.row_hashes import row_keys
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target
from tests.dealing import DEALING, dealing_of
from tests.kernels.rounds import noisy, private, tables

VISITS = Schema((Numeric("age", "a"),), (Target("stay", "d"),), patient="who")


def keys(patients: int, visits: int = 3) -> list[bytes]:
    numbers = [*range(patients * visits)]
    table = {"age": numbers, "stay": numbers, "who": [str(i // visits) for i in numbers]}
    return row_keys(Records.for_training(VISITS, table))


def test_the_rows_of_a_patient_have_one_part_and_one_fold() -> None:
    for dealt in (DEALING.parts(keys(300), held_out=0.4), DEALING.folds(keys(300), FOLDS)):
        of_patients = dealt.reshape(300, 3)
        assert (of_patients == of_patients[:, :1]).all()
        assert len(set(of_patients[:, 0])) > 1


def test_parts_and_folds_have_their_shares_and_say_nothing_about_each_other() -> None:
    own = keys(6000, 1)
    parts, folds = DEALING.parts(own, held_out=0.4), DEALING.folds(own, FOLDS)
    assert np.bincount(parts) / 6000 == pytest.approx([0.6, 0.2, 0.2], abs=0.03)
    for part in range(3):
        assert folds[parts == part].mean() == pytest.approx(0.5, abs=0.06)


def test_a_row_has_its_part_and_fold_wherever_and_with_whomever_it_is() -> None:
    own = keys(50)
    order = np.random.default_rng(1).permutation(len(own))
    for deal in (lambda k: DEALING.parts(k, held_out=0.4), lambda k: DEALING.folds(k, FOLDS)):
        whole = deal(own)
        assert (deal([own[i] for i in order]) == whole[order]).all()
        assert (np.concatenate([deal(own[:70]), deal(own[70:])]) == whole).all()


def test_no_rows_are_dealt_too() -> None:
    assert len(DEALING.parts([], held_out=0.4)) == len(DEALING.folds([], FOLDS)) == 0


def test_a_larger_share_held_out_takes_rows_from_training_only() -> None:
    own = keys(2000, 1)
    few, many = (DEALING.parts(own, held_out=share) > 0 for share in (0.2, 0.3))
    assert (many | ~few).all()


@pytest.mark.parametrize("secret", [b"", b"short", bytes(31), bytes(33), "0" * 32, bytearray(32)])
def test_a_secret_of_another_size_or_type_is_refused(secret: bytes) -> None:
    with pytest.raises(DealingError, match="32 random bytes"):
        Dealing(secret)


def test_two_generated_secrets_differ() -> None:
    assert Dealing.generate() != Dealing.generate()


def test_without_a_dealing_a_simulation_draws_one_of_its_own() -> None:
    program, sites = tables.program(), tables.tables(3)

    def mean(dealing: Dealing | None = None) -> float:
        model = simulate(program, sites, dealing, secure=False).model
        return known(model.standardiser, "moments").numeric[0].mean

    assert len({mean() for _ in range(4)}) == 4
    assert mean(DEALING) == mean(DEALING)


def test_sites_with_secrets_of_their_own_together_give_the_model_of_all_rows_in_one_place() -> None:
    """Also each row's fold is the one that it has at its own site."""
    program = noisy.program(recalibration.Spec(), evaluation.Spec(), held_out=0.5)
    sites = [
        Site.of_table(noisy.SCHEMA, noisy.table(300, seed=i), held_out=0.5, dealing=dealing_of(i))
        for i in range(3)
    ]
    whole = Site.joined(sites)
    federated, pooled = (simulate(program, e, secure=False).model for e in (sites, [whole]))
    assert federated.statistics is not None
    assert pooled.statistics is not None
    assert np.allclose(federated.statistics.scatter, pooled.statistics.scatter, rtol=1e-9)
    laws = (known(each.recalibration, "recalibration") for each in (federated, pooled))
    for ours, theirs in zip(*laws, strict=True):
        assert ours.counts.tolist() == theirs.counts.tolist()
        assert (ours.counts.sum(-1) > 0).all()
    for part in sites[0].parts:
        assert whole.count(part) == sum(site.count(part) for site in sites)


def test_a_joined_site_has_no_secret_to_choose_a_patients_rows_with() -> None:
    sites = [private.site(private.table(60, seed=i, patients=9)) for i in range(2)]
    program = private.program(*private.LAYER, schema=private.PATIENTS)
    with pytest.raises(DealingMissing):
        Site.joined(sites).count(Part.TRAINING, program.start(None))
