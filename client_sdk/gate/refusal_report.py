"""What the coordinator is told about a refusal: a code and a sentence without data.

An error's own message is for the hospital and may contain row counts. The coordinator gets the
error's `public_detail`: a constant of its class or, for a refusal by the site's policy, the
sentence that `refusals` provides.

An error raised while this hospital's own rows are read (`about_own_rows`) is never reported: the
hospital is then absent. A refusal would answer a question about the rows, and the coordinator
chooses the questions.

With blind sums a failure that follows from totals (`about_totals`) has one code, whatever it is:
which one would tell the coordinator something about totals that it cannot read. That the run ends
is told, once, and every member finds the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from client_sdk.error_origin import Origin, mark
from client_sdk.errors import (
    AnotherRun,
    PolicyError,
    ReplayError,
    SessionChanged,
    WrongRun,
    WrongTask,
)
from kernels.errors import KernelsError
from privacy.errors import PrivacyError
from privacy.securesum.errors import NoUpdate

Reportable = (
    PolicyError
    | SessionChanged
    | WrongRun
    | AnotherRun
    | WrongTask
    | ReplayError
    | KernelsError
    | PrivacyError
)
"""Errors that a hospital reports to the coordinator when it refuses to continue."""
REPORTABLE = (
    PolicyError,
    SessionChanged,
    WrongRun,
    AnotherRun,
    WrongTask,
    ReplayError,
    KernelsError,
    PrivacyError,
)
"""The same as a tuple, for `except`."""


@contextmanager
def about_own_rows() -> Iterator[None]:
    """Mark every error raised inside the block as dependent on this hospital's rows."""
    try:
        yield
    except Exception as error:
        mark(error, Origin.OWN_ROWS)
        raise


@contextmanager
def about_totals(*, hidden: bool) -> Iterator[None]:
    """Turn every failure in the block into `NoUpdate` if it follows from totals that are `hidden`.

    A failure of the machine is none of the computation, and passes through.
    """
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if not hidden or isinstance(error, NoUpdate):
            raise
        raise NoUpdate(
            "The run cannot go on from a total that every site has verified. The coordinator is "
            f"told this, and not the reason: {type(error).__name__}: {error}"
        ) from error


def public_code(error: Reportable) -> str:
    """Return the code that the coordinator is told for an error."""
    return error.code


def public_detail(error: Reportable) -> str:
    """Return the sentence that the coordinator is told for an error."""
    return error.public_detail
