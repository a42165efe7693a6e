"""Whatever file, module, name or make target the code and its documents mention exists.

Read are docstrings and comments of Python files, Markdown, the Makefile, pyproject.toml and
.ci/run. A mention is

    a file        `kernels/rounds/program.py`, docs/privacy.md, README.md, in any text
    a folder      `kernels/rounds/`, in backticks
    a module      `kernels.rounds.program`, `client_sdk.join`, in backticks, with what it has
    a command     python -m benchmarks.demo
    a target      `make test`

A file is named from the root of the repository, or by its bare name from a file of its folder.
"""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HOUSES = ("kernels", "privacy", "client_sdk", "service", "openapi", "benchmarks", "tests")
PYTHON = sorted(path for house in HOUSES for path in ROOT.glob(f"{house}/**/*.py"))
TEXTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/*.md")),
    *(ROOT / name for name in ("Makefile", "pyproject.toml", ".ci/run")),
]
MADE_ELSEWHERE = {
    "site.toml",  # a hospital's policy
    "dictionary.toml",
    "roster.json",
    *("north.txt", "south.txt", "east.txt", "west.txt"),  # what `veilgp identity` prints
    *("coast.txt", "hills.txt", "lake.txt", "plain.txt"),
    *("refused.json", "refused.txt", "strict.json"),  # answers to a request
    *("A.json", "B.json", "draft.json"),  # drafts of a schema
    *("north.json", "south.json", "east.json", "west.json"),
    "session.json",
    "schema.json",
    "veilgp.toml",  # an operator's settings
    "card.json",  # in a folder that a model was saved to
    "personal.json",  # in that of a personal one
    "kernels/rounds/columns/correlations.py",  # which docs/contributing.md has its readers add
    "tests/kernels/rounds/columns/test_correlations.py",
}
"""Files that users make. A name with NAME in it stands for several."""
FIELDS = {"privacy.differential_privacy", "privacy.epsilon"}
"""Of a request's JSON, which has a `privacy` too."""

FILE = re.compile(r"(?<![\w./{*<-])[\w.-]+(?:/[\w.-]+)*\.(?:py|md|sh|toml|json|txt)(?![\w/*(-])")
FOLDER = re.compile(rf"(?<![\w./])(?:{'|'.join(HOUSES)}|docs)/(?:[\w-]+/)*(?![\w{{<*…])")
TICKED = re.compile(r"`([^`\n]+)`")
DOTTED = re.compile(rf"(?<![\w./])(?:{'|'.join(HOUSES)})(?:\.\w+)+")
COMMAND = re.compile(rf"python -m ((?:{'|'.join(HOUSES)})[\w.]*\w)")
MAKE = re.compile(r"make (?:-\S+ )*([a-z][a-z-]*)")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def prose(path: Path) -> str:
    """Return what a file says to its readers."""
    text = path.read_text()
    if path.suffix == ".py":
        return "\n".join(_said(text))
    text = re.sub(r"^(?:---|\+\+\+) [ab]/", "", text, flags=re.MULTILINE)  # of a diff
    return re.sub(r"\[`?[\w./-]+`?\]\(", "](", text)  # a link's text is short; its target counts


def _said(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def assert_none(missing: Callable[[Path], Iterable[str]], paths: Iterable[Path]) -> None:
    found = {name_of(path): sorted({*missing(path)}) for path in paths}
    said = [f"{path} mentions {', '.join(names)}" for path, names in found.items() if names]
    assert not said, "\n".join(["what does not exist:", *said])


def ticked(pattern: re.Pattern[str], path: Path) -> set[str]:
    """Return what a pattern finds in backticks."""
    return {found for code in TICKED.findall(prose(path)) for found in pattern.findall(code)}


def test_every_file_that_is_mentioned_exists() -> None:
    def missing(path: Path) -> Iterator[str]:
        for name in {*FILE.findall(prose(path))} - MADE_ELSEWHERE:
            here = any((folder / name).exists() for folder in (ROOT, path.parent))
            if not here and "NAME" not in name:
                yield name

    assert_none(missing, [*PYTHON, *TEXTS])


def test_every_folder_that_is_mentioned_exists() -> None:
    def missing(path: Path) -> Iterator[str]:
        return (name for name in ticked(FOLDER, path) if not (ROOT / name).is_dir())

    assert_none(missing, [*PYTHON, *TEXTS])


def test_every_module_that_is_mentioned_has_what_it_is_said_to_have() -> None:
    def missing(path: Path) -> Iterator[str]:
        names = ticked(DOTTED, path) | {*COMMAND.findall(prose(path))}
        return (name for name in names - FIELDS if not is_there(name))

    assert_none(missing, [*PYTHON, *TEXTS])


def test_every_make_target_that_is_mentioned_exists() -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert_none(lambda path: ticked(MAKE, path) - {*targets}, [*PYTHON, *TEXTS])


def test_every_link_of_a_document_leads_somewhere() -> None:
    def missing(path: Path) -> Iterator[str]:
        for link in LINK.findall(prose(path)):
            if "://" not in link and not (path.parent / link).exists():
                yield link

    assert_none(missing, [path for path in TEXTS if path.suffix == ".md"])


@cache
def is_there(dotted: str) -> bool:
    """Say whether a dotted name is a module's, or that of something within one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        if path.with_suffix(".py").exists() or (path / "__init__.py").exists() or path.is_dir():
            rest = parts[length:]
            return not rest or _has(import_module(".".join(parts[:length])), rest)
    return False


def _has(owner: Any, names: list[str]) -> bool:
    first, *rest = names
    if hasattr(owner, first):
        return not rest or _has(getattr(owner, first), rest)
    # A field without a default is no attribute of its class.
    return not rest and first in getattr(owner, "__annotations__", {})


def test_what_does_not_exist_would_be_noticed() -> None:
    said = "see docs/nowhere.md, (`kernels/nowhere.py`); not x.py/y, *.md or f.json(1)"
    assert FILE.findall(said) == ["docs/nowhere.md", "kernels/nowhere.py"]
    assert is_there("kernels.rounds.program.Program.to_json")
    assert is_there("kernels.rounds.program.Program.kernel")
    assert not is_there("kernels.rounds.program.Program.nothing")
    assert not is_there("kernels.rounds.nowhere")
    assert sum(len(FILE.findall(prose(path))) for path in [*PYTHON, *TEXTS]) > 200
