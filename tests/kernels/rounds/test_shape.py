"""Who has read one algorithm has read all: every file has the same parts in the same order."""

import ast
import sys
from pathlib import Path

import pytest

from kernels.rounds.registry import ALGORITHMS
from kernels.rounds.stated.names import ALGORITHM_NAMES

SHAPE = (
    *("NAME", "VERSION", "NEEDS", "MAKES", "Spec", "State"),
    *("layout", "initial", "contribute", "update", "finished", "check_private", "declare"),
    "STORED",
)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_parts_of_an_algorithm_stand_in_one_order_before_its_private_functions(
    name: str,
) -> None:
    tree = ast.parse(_source(name))
    defined = [each for statement in tree.body for each in _names(statement)]
    assert [each for each in defined if each in SHAPE] == list(SHAPE)
    functions = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
    private = [each for each in functions if each not in SHAPE]
    assert functions[len(functions) - len(private) :] == private


def test_the_names_that_a_policy_may_have_are_those_of_the_installed_algorithms() -> None:
    assert sorted(ALGORITHM_NAMES) == sorted(ALGORITHMS)


def _source(name: str) -> str:
    """Return the text of the module that is registered under a name."""
    (module,) = (each for each in sys.modules.values() if each is ALGORITHMS[name])
    return Path(str(module.__file__)).read_text()


def _names(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []
