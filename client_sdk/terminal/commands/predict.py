"""`veilgp predict MODEL TABLE`: predictions for a CSV or Parquet table, written as CSV."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from client_sdk.terminal.commands.failures import reported
from client_sdk.terminal.commands.model_options import RosterOption, UncertifiedOption
from client_sdk.terminal.commands.session import HomeOption

if TYPE_CHECKING:
    from client_sdk.model.predictions import Predictions

STDOUT = Path("-")


def predict(
    model: Annotated[Path, typer.Argument(help="The folder of the saved model.")],
    table: Annotated[Path, typer.Argument(help="A CSV or Parquet file, or a folder of them.")],
    *,
    out: Annotated[Path, typer.Option(help="The CSV file to write; - prints it.")] = STDOUT,
    interval: Annotated[
        float | None, typer.Option(help="Also write intervals at this level, such as 0.9.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Kind of interval: conformal, student_t or gaussian.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="The model's method to use; veilgp card lists them."),
    ] = None,
    roster: RosterOption = None,
    home: HomeOption = None,
    uncertified: UncertifiedOption = False,
) -> None:
    """Predict every row of a table, in row order, on this machine; nothing is sent.

    MODEL is a global model, or this hospital's own that `veilgp personal` made.
    """
    from client_sdk.model.model import GlobalModel
    from client_sdk.model.personal.files import is_personal
    from client_sdk.model.personal.model import PersonalModel
    from client_sdk.model.predicting import PredictsTables

    with reported():
        loaded: PredictsTables
        if is_personal(model):
            loaded = PersonalModel.load(model)
        else:
            loaded = GlobalModel.load(model, roster=roster, home=home, uncertified=uncertified)
        with _opened(out) as file:
            predicted = loaded.predict_in_pieces(table, method=method)
            _write(predicted, file, interval, kind)


def _write(
    predicted: "Iterator[Predictions]", file: BinaryIO, interval: float | None, kind: str | None
) -> None:
    import pyarrow
    from pyarrow import csv

    for piece, predictions in enumerate(predicted):
        written = predictions.to_dict()
        if interval is not None:
            written |= predictions.intervals(interval, kind=kind).to_dict()
        header = csv.WriteOptions(include_header=piece == 0, quoting_style="needed")
        csv.write_csv(pyarrow.table(written), file, header)


@contextmanager
def _opened(out: Path) -> Iterator[BinaryIO]:
    """Open the output; a file appears only when it is complete."""
    from client_sdk.errors import TableNotWritten

    if out == STDOUT:
        yield sys.stdout.buffer
        return
    new = out.with_name(f".{out.name}.{secrets.token_hex(4)}.tmp")
    try:
        with new.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        new.replace(out)
    except OSError as problem:
        sentence = f"cannot write {out}: {problem.strerror or problem}"
        raise TableNotWritten(sentence) from problem
    finally:
        new.unlink(missing_ok=True)
