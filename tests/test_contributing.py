"""Adding an algorithm is one file and its line in the registry: docs/contributing.md, done."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "contributing.md").read_text()
ALGORITHM, TESTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
DIFFS = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
PLACES = {
    "kernels/rounds/columns/correlations.py": ALGORITHM,
    "tests/kernels/rounds/columns/test_correlations.py": TESTS,
}


def apply(diff: str, tree: Path) -> None:
    """Apply the hunks of a diff, each of which must fit in exactly one place."""
    names, *hunks = re.split(r"^@@\n", diff, flags=re.MULTILINE)
    file = tree / names.split()[1]
    for hunk in hunks:
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        after = "".join(line[1:] for line in lines if line[0] in " +")
        text = file.read_text()
        assert text.count(before) == 1, f"{file.name} does not have once:\n{before}"
        file.write_text(text.replace(before, after))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of what the page changes, with its changes."""
    for package in ("kernels", "tests"):
        shutil.copytree(ROOT / package, tmp_path / package)
    for place, text in PLACES.items():
        assert not (ROOT / place).exists()
        (tmp_path / place).write_text(text)
    for diff in DIFFS:
        apply(diff, tmp_path)
    return tmp_path


@pytest.mark.full
def test_the_page_adds_an_algorithm_that_works_and_keeps_all_promises(tree: Path) -> None:
    declarations = "tests/conformance/test_declarations.py"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider"),
            "tests/added_algorithm.py",
            "tests/kernels/rounds/columns/test_correlations.py",
            "tests/kernels/rounds/test_shape.py",
            f"{declarations}::test_an_algorithm_keeps_to_what_it_declares[correlations]",
            f"{declarations}::test_every_installed_algorithm_is_held_to_its_declaration",
        ],
        cwd=tree,
        env={
            **os.environ,
            "PYTHONPATH": f"{tree}{os.pathsep}{ROOT}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # half of the seconds are other plugins' imports
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("place", PLACES)
def test_the_page_keeps_to_the_style(place: str) -> None:
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "--stdin-filename", place, "-"],
            cwd=ROOT,
            input=PLACES[place],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
