"""Remove every check, one at a time, and verify that the test of its attack then fails.

    python -m tests.adversary.mutations            all of them, takes some minutes
    python -m tests.adversary.mutations steady     those with this word in description or file name

mutations.toml is the list. The packages are copied, changed and tested in a temporary directory. A
mutation whose test still passes has survived: a test is missing, or the check is redundant.
"""

import ast
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from shutil import copy, copytree, ignore_patterns

ROOT = Path(__file__).resolve().parents[2]
HERE = Path("tests/adversary")


@dataclass(frozen=True)
class Mutation:
    """One check, how it is removed, and the test (file prefix::name) that must then fail."""

    what: str
    file: str
    test: str
    old: str = ""
    new: str = ""
    function: str = ""
    also: "tuple[Mutation, ...]" = ()
    """Further checks that are removed with it, each in another file or place."""

    @property
    def parts(self) -> "tuple[Mutation, ...]":
        """It and those that are removed with it."""
        return (self, *self.also)

    def applied(self, source: str) -> str:
        """Return the source without the check."""
        if self.function:
            return _changed(source, self.function, self.old)
        if source.count(self.old) != 1:
            raise LookupError(f"{self.file}: {source.count(self.old)} × {self.old!r}, not one")
        return source.replace(self.old, self.new)


def listed() -> tuple[Mutation, ...]:
    """Return the mutations of all checks."""
    found = []
    for file, kinds in tomllib.loads((ROOT / HERE / "mutations.toml").read_text()).items():
        found += [
            Mutation(f"{function} returns at once", file, test, function=function)
            for function, test in kinds.get("emptied", ())
        ]
        found += [
            Mutation(f"{caller}: {call}", file, test, call, function=caller)
            for caller, call, test in kinds.get("uncalled", ())
        ]
        found += [
            Mutation(what, file, test, old, new)
            for what, old, new, test in kinds.get("changed", ())
        ]
        for what, places, test in kinds.get("together", ()):
            first, *others = (Mutation(what, *place[:1], test, *place[1:]) for place in places)
            found.append(replace(first, also=tuple(others)))
    return tuple(found)


def _changed(source: str, name: str, call: str) -> str:
    """Return the source with one function reduced to its docstring, or without one call."""
    (found,) = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    body = found.body[1:] if ast.get_docstring(found) else found.body
    instead = "return None"
    if call:
        body = [
            node
            for node in ast.walk(found)
            if isinstance(node, ast.Expr) and ast.unparse(node).startswith(f"{call}(")
        ]
        instead = "pass"
        if len(body) != 1:
            raise LookupError(f"{name} calls {call} {len(body)} times, not once")
    lines = source.splitlines(keepends=True)
    first, last = body[0].lineno - 1, body[-1].end_lineno
    return "".join([*lines[:first], " " * body[0].col_offset, f"{instead}\n", *lines[last:]])


def _copied(to: Path) -> Path:
    """Copy the files that the attacks need."""
    ignored = ignore_patterns("__pycache__")
    for package in ("privacy", "kernels", "client_sdk", "service", "tests"):
        copytree(ROOT / package, to / package, ignore=ignored)
    copy(ROOT / "pyproject.toml", to)
    return to


def node_of(test: str) -> str:
    """Return pytest's name of a listed test."""
    prefix, name = test.split("::")
    files = (ROOT / HERE).glob(f"test_{prefix}_*.py")
    (file,) = (file for file in files if f"def {name}(" in file.read_text("utf-8"))
    return f"{HERE / file.name}::{name}"


def _run(at: Path, nodes: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run tests in a copy; its own modules come first on the path."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-o",
               "addopts=", *nodes]  # fmt: skip
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",  # a changed file may have the size and second of the last
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(at),
    }
    return subprocess.run(
        command, cwd=at, env=environment, check=False, capture_output=True, text=True
    )


def outcome(mutation: Mutation, at: Path) -> str:
    """Apply a mutation to a copy, run its test, and restore the copy."""
    sources = {part.file: (at / part.file).read_text() for part in mutation.parts}
    try:
        for part in mutation.parts:
            file = at / part.file
            file.write_text(part.applied(file.read_text()))
        done = _run(at, [node_of(mutation.test)])
    except (LookupError, ValueError) as error:
        return f"NOT APPLICABLE {error}"
    finally:
        for name, source in sources.items():
            (at / name).write_text(source)
    if done.returncode == 1:
        return "killed"
    return "SURVIVED" if done.returncode == 0 else f"BROKEN {done.stdout[-300:]}"


def outcomes(chosen: Sequence[Mutation]) -> Iterator[tuple[Mutation, str]]:
    """Try mutations in two copies at a time, after all their tests passed without a mutation."""
    with tempfile.TemporaryDirectory() as directory:
        copies: SimpleQueue[Path] = SimpleQueue()
        for name in ("one", "two"):
            copies.put(_copied(Path(directory) / name))

        def attempt(mutation: Mutation) -> str:
            at = copies.get()
            try:
                return outcome(mutation, at)
            finally:
                copies.put(at)

        baseline = _run(Path(directory) / "one", sorted({node_of(m.test) for m in chosen}))
        if baseline.returncode != 0:
            raise SystemExit(f"The tests fail without any mutation:\n{baseline.stdout}")
        with ThreadPoolExecutor(max_workers=2) as pool:
            yield from zip(chosen, pool.map(attempt, chosen), strict=True)


def main(words: Sequence[str]) -> int:
    """Print the outcome of each mutation; fail if one was not killed."""
    chosen = [
        mutation
        for mutation in listed()
        if all(word in f"{mutation.what} {mutation.file} {mutation.test}" for word in words)
    ]
    alive = 0
    for mutation, result in outcomes(chosen):
        alive += result != "killed"
        place = mutation.file.removeprefix("privacy/")
        sys.stdout.write(f"{result:10} {place:26} {mutation.what:52} {mutation.test}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen)} mutations, {len(chosen) - alive} killed\n")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
