"""Results that stay: measured once, and measured again only when what they depend on has changed.

A cell's result is kept with a fingerprint of the sources that decide its numbers: of their syntax
trees without docstrings, so that neither a comment nor a change elsewhere costs an hour. Which
sources those are each benchmark says itself.
"""

import ast
import hashlib
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from benchmarks.cells import two_at_a_time

Result = Mapping[str, Any]
"""Of one cell, what was measured: numbers by name, possibly in named groups."""


class Keyed(Protocol):
    """A measurement with a name of its own."""

    @property
    def key(self) -> str:
        """Name it."""


Cell = TypeVar("Cell", bound=Keyed)

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def fingerprint(sources: Iterable[Path]) -> str:
    """Return a digest of what some Python files do, whatever they say about it."""
    digest = hashlib.sha256()
    for source in sorted(sources):
        tree = ast.parse(source.read_text())
        digest.update(source.name.encode())
        digest.update(ast.dump(_without_docstrings(tree)).encode())
    return digest.hexdigest()[:16]


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            node.body = [each for each in node.body if not _is_text(each)] or [ast.Pass()]
    return tree


def _is_text(node: ast.stmt) -> bool:
    """Say whether a statement is a docstring, or a string that documents what stands above it."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


class Kept:
    """Cells by name in one JSON file, written after each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cells: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def result(self, name: str, code: str) -> Result | None:
        """Return the result of a cell if that code measured it."""
        cell = self._cells.get(name)
        if cell is None or cell["code"] != code:
            return None
        found: Result = cell["result"]
        return found

    def of_earlier_code(self, name: str) -> Result | None:
        """Return the result of a cell that any code measured, to be shown as such."""
        cell = self._cells.get(name)
        return None if cell is None else cell["result"]

    def keep(self, name: str, code: str, result: Result) -> None:
        """Store a result; a run that is stopped right after has it."""
        self._cells[name] = {"code": code, "result": result}
        self._write()

    def _write(self) -> None:
        lines = [
            f"{json.dumps(key)}: {json.dumps(self._cells[key])}" for key in sorted(self._cells)
        ]
        self._path.parent.mkdir(exist_ok=True)
        partial = self._path.with_suffix(".partial")
        partial.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        partial.replace(self._path)


def measured(
    kept: Kept,
    plan: Sequence[Cell],
    options: Namespace,
    *,
    code_of: Callable[[Cell], str],
    measure: Callable[[Cell, Path], Result],
) -> dict[Cell, Result]:
    """Return what is kept of the plan, and measure what is missing if `--only` allows it."""
    codes = {cell: code_of(cell) for cell in plan}
    found = {
        cell: result for cell in plan if (result := kept.result(cell.key, codes[cell])) is not None
    }
    missing = {cell.key: cell for cell in plan if cell not in found and options.only in cell.key}
    measuring = two_at_a_time(measure, {key: (cell, options.data) for key, cell in missing.items()})
    for number, (key, result) in enumerate(measuring, start=1):
        cell = missing[key]
        kept.keep(key, codes[cell], result)
        found[cell] = result
        print(f"  {number} of {len(missing)}: {key}", file=sys.stderr, flush=True)
    return {cell: found[cell] for cell in plan if cell in found}
