"""What a shell command does with a named error: its sentence, its code, exit status 1."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def reported() -> Iterator[None]:
    """Print a named error instead of a traceback."""
    from client_sdk.errors import ClientError
    from client_sdk.readable import readable
    from kernels.errors import KernelsError

    try:
        yield
    except (ClientError, KernelsError) as error:
        lines = [*str(error).splitlines(), *getattr(error, "__notes__", ())]
        sentence = "\n".join(map(readable, lines))
        typer.echo(f"veilgp: {sentence} [{error.code}]", err=True)
        raise typer.Exit(1) from error
