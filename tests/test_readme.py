"""What the README and the pages of docs show runs as it stands there; what they link to exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
RUN_ELSEWHERE = {"contributing.md": "tests/test_contributing.py"}
"""Pages whose examples are not programs by themselves."""
EXAMPLES = [
    (page.name, example)
    for page in PAGES
    if page.name not in RUN_ELSEWHERE
    for example in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


@pytest.mark.parametrize(("page", "example"), EXAMPLES, ids=[page for page, _ in EXAMPLES])
def test_examples_run(page: str, example: str) -> None:
    exec(compile(example, page, "exec"), {})  # noqa: S102


def test_there_is_an_example_of_a_whole_program() -> None:
    assert "algorithms.md" in {page for page, _ in EXAMPLES}


def test_the_readme_is_short_and_links_to_every_page() -> None:
    assert len(README.splitlines()) <= 150
    assert set(re.findall(r"\]\(docs/([a-z-]+\.md)\)", README)) == {p.name for p in PAGES[1:]}


def test_make_has_the_targets_that_the_readme_names() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"make ([a-z-]+)", README)) <= set(targets)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_and_headings_that_a_page_points_to_exist(page: Path) -> None:
    for path, heading in re.findall(r"\]\(([^)#:]*)(#[^)]*)?\)", page.read_text()):
        target = page.parent / path if path else page
        assert target.exists(), path
        if heading:
            assert heading[1:] in anchors(target), f"{path}{heading}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
