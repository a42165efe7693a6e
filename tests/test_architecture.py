"""The map in docs/architecture.md is true: its rooms, its walk, its glossary."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEPS = re.findall(r"^\d+\. (`([\w/]+\.py)`: .*)$", PAGE, re.MULTILINE)
PACKAGES = ("kernels", "privacy", "client_sdk", "service")
WORDS = (
    *("epoch", "slot", "cohort", "unit", "part", "student", "open", "stage", "run", "session"),
    *("terms", "disclosure", "dealing"),
)


def defined(file: str) -> set[str]:
    """Return the functions and classes of a file, methods as Class.method."""
    names: set[str] = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            names |= {f"{node.name}.{each.name}" for each in inner}
    return names


def test_the_walk_is_long_and_its_steps_are_numbered() -> None:
    numbers = re.findall(r"^(\d+)\. ", PAGE, re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, len(STEPS) + 1))
    assert len(STEPS) >= 15


@pytest.mark.parametrize(("step", "file"), STEPS, ids=[f"{n + 1}" for n in range(len(STEPS))])
def test_a_step_of_the_walk_names_functions_of_its_file(step: str, file: str) -> None:
    ticked = re.findall(r"`([A-Za-z_.]+)`", step.split(": ", 1)[1])
    first = ticked[0]
    assert first in defined(file), f"{file} has no {first}"
    for name in ticked[1:]:
        if re.fullmatch(r"[A-Z]\w+\.\w+", name):
            assert name in defined(file), f"{file} has no {name}"


def test_every_room_is_in_the_map_and_no_other() -> None:
    rooms = {
        f"{init.parent.relative_to(ROOT)}/"
        for package in PACKAGES
        for init in (ROOT / package).glob("**/__init__.py")
        if init.parent.name != "versions"
    }
    tables = "\n".join(re.findall(r"^\| (`[^|]+) \|", PAGE, re.MULTILINE))
    assert set(re.findall(r"`([\w/]+/)`", tables)) == rooms


@pytest.mark.parametrize("word", WORDS)
def test_the_glossary_has_the_words_of_the_house(word: str) -> None:
    assert re.search(rf"^\| {word} \| \w", PAGE, re.MULTILINE)
