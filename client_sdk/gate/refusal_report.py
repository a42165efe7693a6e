"""What the coordinator hears of a refusal: a code, and a sentence that holds no data.

An error's own message is for the hospital: it may count rows. The coordinator gets the error's
`public_detail`, which is a constant of its class, or, for a refusal of the site's policy, the
sentence that `refusals` wrote for it.

Whatever was raised while this hospital's own rows were looked at (`about_own_rows`) has one code
and one sentence, `site.refused`: told apart, refusals would answer questions about the rows, and
the coordinator chooses the questions.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from client_sdk.error_origin import Origin, mark, origins_of
from client_sdk.errors import AnotherRun, PolicyError, SessionChanged, WrongRun, WrongTask
from kernels.errors import KernelsError
from privacy.errors import PrivacyError

Reportable = (
    PolicyError | SessionChanged | WrongRun | AnotherRun | WrongTask | KernelsError | PrivacyError
)
"""What a hospital tells the coordinator when it refuses to go on."""
REPORTABLE = (
    PolicyError,
    SessionChanged,
    WrongRun,
    AnotherRun,
    WrongTask,
    KernelsError,
    PrivacyError,
)
"""The same, to be caught."""

SITE_REFUSED = "site.refused"
_SITE_REFUSED_DETAIL = "the site refuses, for a reason that is about its own table and stays there"


@contextmanager
def about_own_rows() -> Iterator[None]:
    """Mark whatever is raised inside as something that depends on this hospital's rows."""
    try:
        yield
    except Exception as error:
        mark(error, Origin.OWN_ROWS)
        raise


def public_code(error: Reportable) -> str:
    """Return the code that the coordinator may hear of an error."""
    return SITE_REFUSED if Origin.OWN_ROWS in origins_of(error) else error.code


def public_detail(error: Reportable) -> str:
    """Return the sentence that the coordinator may hear of an error."""
    return _SITE_REFUSED_DETAIL if Origin.OWN_ROWS in origins_of(error) else error.public_detail
