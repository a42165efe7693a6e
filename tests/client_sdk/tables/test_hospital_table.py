"""Rows that an update adds or removes are dealt as the rows of the table are."""

import numpy as np
import pytest

from client_sdk.tables.hospital_table import Changes, site_of
from kernels.rounds.columns import moments
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part
from kernels.tables.row_hashes import row_keys
from tests.dealing import DEALING
from tests.kernels.rounds import private, tables

PROGRAM = Program(tables.SCHEMA, tables.KERNEL, (moments.Spec(), linear.Spec()), held_out=0.4)
PAIRS = {
    Part.ADDED: Part.ADDED_HELD_OUT,
    Part.REMOVED: Part.REMOVED_HELD_OUT,
}


@pytest.mark.parametrize("changed", PAIRS)
def test_a_row_changes_what_its_part_is_in(changed: Part) -> None:
    table = tables.table(40, seed=1)
    changes = Changes(**{str(changed): table})
    site = site_of(PROGRAM, table, DEALING, changes=changes).site
    held_out = [
        key for part in (Part.STOPPING, Part.CALIBRATION) for key in row_keys(site.records[part])
    ]
    assert row_keys(site.records[changed]) == row_keys(site.records[Part.TRAINING])
    assert sorted(row_keys(site.records[PAIRS[changed]])) == sorted(held_out)


def test_with_noise_all_added_rows_are_for_training() -> None:
    program = private.program(moments.Spec(), linear.Spec())
    table = private.table(40, seed=1)
    site = site_of(program, table, DEALING, changes=Changes(added=table)).site
    assert site.count(Part.ADDED) == 40
    assert Part.ADDED_HELD_OUT not in site.parts


@pytest.mark.parametrize("noise", [False, True])
def test_rows_without_a_target_are_left_out_of_the_table_and_of_its_changes(noise: bool) -> None:
    made = private if noise else tables
    program = private.program(moments.Spec(), linear.Spec()) if noise else PROGRAM
    whole = {name: np.array(cells, object) for name, cells in made.table(40, seed=1).items()}
    lacking = {name: cells.copy() for name, cells in whole.items()}
    lacking["stay"][[3, 5, 8]] = None
    kept = {name: np.delete(cells, [3, 5, 8]) for name, cells in whole.items()}
    found = site_of(program, lacking, DEALING, changes=Changes(added=lacking))
    expected = site_of(program, kept, DEALING, changes=Changes(added=kept))
    assert (found.without_target, expected.without_target) == (6, 0)
    assert (found.digest, found.journalled) == (expected.digest, expected.journalled)
    assert found.counts == expected.counts
    if noise:
        assert found.row_by_row is not None
        assert found.row_by_row.left_out == 0
