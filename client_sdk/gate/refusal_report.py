"""What the coordinator is told about a refusal: a code and a sentence without data.

An error's own message is for the hospital and may contain row counts. The coordinator gets the
error's `public_detail`: a constant of its class or, for a refusal by the site's policy, the
sentence that `refusals` provides.

An error raised while this hospital's own rows are read (`about_own_rows`) is never reported: the
hospital is then absent. A refusal would answer a question about the rows, and the coordinator
chooses the questions.
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


def public_code(error: Reportable) -> str:
    """Return the code that the coordinator is told for an error."""
    return error.code


def public_detail(error: Reportable) -> str:
    """Return the sentence that the coordinator is told for an error."""
    return error.public_detail
