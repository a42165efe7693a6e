"""Measurements by name, kept on disk during a run, so that an interrupted run can be resumed.

The file belongs to one state of the code: a change to what is measured, or to how, discards it.
It is deleted when the run is complete, so that the next run measures everything again.
"""

import hashlib
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

import torch

Cell = Mapping[str, float]
Result = TypeVar("Result")


class Cells:
    """Runs measurements one by one and prints a progress line for each on stderr."""

    def __init__(self, path: Path, sources: list[Path]) -> None:
        contents = b"".join(source.read_bytes() for source in sorted(sources))
        self._code = hashlib.sha256(contents).hexdigest()
        self._path = path
        self._done: dict[str, Any] = {}
        if path.exists():
            kept = json.loads(path.read_text())
            if kept["code"] == self._code:
                self._done = kept["cells"]

    def __contains__(self, name: str) -> bool:
        return name in self._done

    def measure(self, name: str, work: Callable[[], Result]) -> Result:
        """Return the measurement of that name, from the interrupted run if it is stored there.

        A measurement is a value that JSON can represent: numbers by name, possibly in named groups.
        """
        if name in self._done:
            print(f"  {name}: kept", file=sys.stderr, flush=True)
            kept: Result = self._done[name]
            return kept
        print(f"  {name} …", end="", file=sys.stderr, flush=True)
        start = time.monotonic()
        cell = work()
        print(f" {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
        self._keep(name, cell)
        return cell

    def measure_all(
        self, work: Callable[..., Result], wanted: Mapping[str, tuple[Any, ...]]
    ) -> dict[str, Result]:
        """Return the measurement `work(*arguments)` of every name, two at a time.

        Each is measured in a process with one thread, and stored as soon as it is available.
        """
        missing = {name: each for name, each in wanted.items() if name not in self}
        for number, (name, result) in enumerate(two_at_a_time(work, missing), start=1):
            self._keep(name, result)
            print(f"  {number} of {len(missing)}: {name}", file=sys.stderr, flush=True)
        return {name: self._done[name] for name in wanted}

    def _keep(self, name: str, cell: Any) -> None:
        self._done[name] = cell
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps({"code": self._code, "cells": self._done}))

    def finish(self) -> None:
        """Delete the stored measurements: the run is complete."""
        self._path.unlink(missing_ok=True)


def two_at_a_time(
    work: Callable[..., Result], wanted: Mapping[str, tuple[Any, ...]]
) -> Iterator[tuple[str, Result]]:
    """Yield every name with `work(*arguments)` as soon as it is available, from two processes.

    Each process has one thread. If iteration stops early, work that has not started is cancelled.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        2, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        futures = {pool.submit(work, *arguments): name for name, arguments in wanted.items()}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)
