"""Every listed mutation names a check that exists: otherwise it would silently not be tried."""

import ast

import pytest

from tests.adversary.mutations import ROOT, Mutation, listed, node_of


@pytest.mark.parametrize("mutation", listed(), ids=lambda each: f"{each.file}: {each.what}")
def test_every_check_can_be_taken_out_and_names_the_test_that_must_fail(mutation: Mutation) -> None:
    for part in mutation.parts:
        source = (ROOT / part.file).read_text()
        changed = part.applied(source)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    assert node_of(mutation.test)
