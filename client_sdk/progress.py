"""Display of a session's events in a terminal or a notebook.

"rich" draws a progress bar in both, "plain" writes one line per event, "silent" shows nothing, and
"auto" uses "rich" in a terminal or notebook and "plain" otherwise.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from client_sdk.errors import ClientError
from client_sdk.events import Event, EventWatch, RunOver, StepLearnt, VectorLeft
from client_sdk.readable import readable_lines


def silent(event: Event) -> None:
    """Show nothing."""


class PlainLines:
    """One line per event."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    def __call__(self, event: Event) -> None:
        """Write the event."""
        self._stream.write(f"{readable_lines(str(event))}\n")
        self._stream.flush()


class RichProgress:
    """Lines above a progress bar of the run's stages."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._bar: TaskID | None = None

    def __call__(self, event: Event) -> None:
        """Draw the event."""
        match event:
            case VectorLeft():
                if self._bar is None:
                    self._bar = self._progress.add_task("", total=event.stages, detail="")
                self._progress.update(
                    self._bar,
                    completed=event.stage,
                    total=event.stages,
                    description=event.algorithm,
                    detail=f"sum {event.sum_number}, {event.elements} numbers, masked",
                )
            case StepLearnt():  # the bar shows how far it is; a line for each step hides the rest
                pass
            case _:
                if isinstance(event, RunOver) and self._bar is not None:
                    self._progress.remove_task(self._bar)
                    self._bar = None
                # Text and not markup: names come from the coordinator.
                self._console.print(Text(readable_lines(str(event))))

    @contextmanager
    def shown(self) -> Iterator[EventWatch]:
        """Draw while the block runs."""
        with self._progress:
            yield self


@contextmanager
def watching(progress: str | EventWatch | None) -> Iterator[EventWatch]:
    """Yield the watch for "auto", "rich", "plain" or "silent", or the given function."""
    if progress is not None and not isinstance(progress, str):
        yield progress
        return
    if progress not in (None, "auto", "rich", "plain", "silent"):
        raise ClientError(
            f"progress must be auto, rich, plain, silent or a function, not {progress!r}"
        )
    console = Console(stderr=True)
    if progress == "silent":
        yield silent
    elif progress == "rich" or (
        progress != "plain" and (console.is_terminal or Console().is_jupyter)
    ):
        drawing = RichProgress(Console() if Console().is_jupyter else console)
        with drawing.shown() as watch:
            yield watch
    else:
        yield PlainLines()
