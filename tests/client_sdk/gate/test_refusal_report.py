"""What a coordinator is told about a refusal contains no data, whatever the error's message."""

import string
from collections.abc import Iterator
from typing import get_args

import pytest

from client_sdk.error_origin import Origin, mark, origins_of
from client_sdk.errors import (
    PolicyFileError,
    PolicyRefusal,
    PolicyRefused,
    WrongTask,
)
from client_sdk.gate.refusal_report import (
    REPORTABLE,
    Reportable,
    about_own_rows,
    public_code,
    public_detail,
)
from kernels.errors import ColumnError, KernelsError, SchemaRefused, TableRefused
from privacy.errors import PrivacyError
from privacy.securesum.errors import AboutMembers, SecureSumError

OF_A_PATIENT = "4711-erythema"
ROOTS = {KernelsError, PrivacyError}


def reportable() -> list[type[Reportable]]:
    def below(kind: type[Reportable]) -> Iterator[type[Reportable]]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    return list(dict.fromkeys(kind for root in REPORTABLE for kind in below(root)))


def made(kind: type[Reportable]) -> Reportable:
    if issubclass(kind, PolicyRefusal):
        return kind(
            OF_A_PATIENT,
            line=OF_A_PATIENT,
            because=OF_A_PATIENT,
            public_detail="the site does not allow it",
        )
    if issubclass(kind, PolicyRefused):
        return kind([made_refusal()])
    if issubclass(kind, SchemaRefused | TableRefused):
        return kind([])
    if issubclass(kind, ColumnError):
        return kind(OF_A_PATIENT, OF_A_PATIENT, rows=4711)
    if issubclass(kind, AboutMembers):
        return kind(OF_A_PATIENT, ranks=(4711,))
    return kind(OF_A_PATIENT)


def made_refusal() -> PolicyRefusal:
    return PolicyRefusal(OF_A_PATIENT, line=OF_A_PATIENT, because=OF_A_PATIENT, public_detail="no")


def test_what_is_reported_is_what_is_caught() -> None:
    assert set(get_args(Reportable)) == set(REPORTABLE)
    assert SecureSumError in reportable()
    assert len(reportable()) > 150


@pytest.mark.parametrize(
    "kind", reportable(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}"
)
def test_every_reportable_error_has_a_public_detail_that_is_a_constant(
    kind: type[Reportable],
) -> None:
    if kind not in ROOTS:  # the text of a root is for errors without a class of their own
        own = [each for each in kind.__mro__ if "public_detail" in vars(each)]
        assert own[0] not in ROOTS, "neither the class nor its branch says what may be heard"
    constant = kind.public_detail
    assert constant
    assert not set("{}%`") & set(constant)
    assert set(constant) <= set(string.ascii_letters + "0123456789 .,;:'-()")
    told = public_detail(made(kind))
    assert "4711" not in told
    assert "erythema" not in told
    if not issubclass(kind, PolicyRefusal | PolicyRefused):
        assert told == constant


def test_whatever_is_about_the_rows_is_marked_and_so_never_reported() -> None:
    for error in (
        KernelsError(OF_A_PATIENT),
        PrivacyError(OF_A_PATIENT),
        made_refusal(),
        PolicyFileError("x"),
    ):
        with pytest.raises(type(error)), about_own_rows():
            raise error
        assert origins_of(error) == {Origin.OWN_ROWS}


def test_marks_are_on_the_error_and_not_in_its_text() -> None:
    """An error is not marked just because its message, notes or docstring repeat a mark's text."""
    error = WrongTask(Origin.OWN_ROWS.value)
    error.add_note(Origin.OWN_ROWS.value)
    error.add_note(Origin.COORDINATOR.value)
    assert origins_of(error) == frozenset()
    assert public_code(error) == WrongTask.code
    mark(error, Origin.COORDINATOR)
    mark(error, Origin.OWN_ROWS)
    assert origins_of(error) == set(Origin)
    assert origins_of(WrongTask("another")) == frozenset()
