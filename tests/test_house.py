"""Folders stay rooms: few enough files to read at a glance, and a sentence at every door."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOUSES = ("kernels", "privacy", "client_sdk", "service", "openapi", "benchmarks")
PACKAGES = sorted(init.parent for house in HOUSES for init in ROOT.glob(f"{house}/**/__init__.py"))
MOST_MODULES = 20


def name_of(package: Path) -> str:
    return str(package.relative_to(ROOT))


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_no_package_has_more_modules_than_one_reads_at_a_glance(package: Path) -> None:
    modules = [path.name for path in package.glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MOST_MODULES, f"{name_of(package)} needs rooms within"


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_every_package_says_in_one_sentence_what_it_is(package: Path) -> None:
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    first, _, rest = text.partition("\n")
    assert first.endswith("."), f"{name_of(package)}/__init__.py has no sentence in its first line"
    assert ". " not in first
    assert rest.startswith("\n") or not rest, "what follows the sentence is a paragraph of its own"


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for house in HOUSES for path in ROOT.glob(f"{house}/**/*.py")}
    assert folders == {*PACKAGES}
