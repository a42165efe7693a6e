"""What the README shows runs as it stands there; what it and the pages of docs point to exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_examples_run(example: str) -> None:
    exec(compile(example, "README.md", "exec"), {})  # noqa: S102


def test_make_has_the_targets_that_the_readme_names() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"make (\w+)", README)) <= set(targets)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *ROOT.glob("docs/*.md")], ids=lambda p: p.name
)
def test_files_that_a_page_points_to_exist(page: Path) -> None:
    for path in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / path).exists(), path
