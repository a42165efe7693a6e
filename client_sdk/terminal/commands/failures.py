"""How a shell command reports a named error: its sentence, its code and an exit status.

The exit status is 1 for an error, 3 for a refusal by the site's policy, 4 for a run that failed
elsewhere, and 130 if the command was interrupted.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def reported() -> Iterator[None]:
    """Print a named error instead of a traceback."""
    from client_sdk.error_origin import Origin, origins_of
    from client_sdk.errors import ClientError, PolicyError, RunFailed
    from client_sdk.readable import readable
    from kernels.errors import KernelsError, TableRefused
    from privacy.errors import PrivacyError

    try:
        yield
    except (ClientError, KernelsError, PrivacyError) as error:
        marks = origins_of(error)
        explained = [origin.value for origin in Origin if origin in marks]
        lines = [*str(error).splitlines(), *explained]
        if isinstance(error, TableRefused) and Origin.OWN_ROWS in marks:
            lines.append("To see these cells, at home only: veilgp check TABLE --schema FILE")
        sentence = "\n".join(map(readable, lines))
        typer.echo(f"veilgp: {sentence} [{error.code}]", err=True)
        status = 3 if isinstance(error, PolicyError) else 4 if isinstance(error, RunFailed) else 1
        raise typer.Exit(status) from error
    except KeyboardInterrupt:
        typer.echo(
            "veilgp: interrupted. Nothing is lost: run the same command again to continue.",
            err=True,
        )
        raise typer.Exit(130) from None
