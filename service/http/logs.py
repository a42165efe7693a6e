"""The coordinator's log on stderr: text for people or JSON for machines.

A line has a time, a level, a logger, a message, and the ids of the request, the session and the run
that it is about. It never contains data: messages are written by this program, and for an error
raised by a library only its type and traceback locations are logged, because its message may quote
what was sent or the parameters of a query. Requesters and their addresses are not logged either.
"""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from traceback import StackSummary, extract_tb
from typing import Any

from kernels.errors import KernelsError
from privacy.errors import PrivacyError
from service.errors import ServiceError
from service.http.times import iso_time

IDS = ("request", "session", "run")
"""The ids that a line may have; given as `extra` or, for a request, by `about_request`."""

_ID = re.compile("[0-9a-f-]{32,36}")
_OURS = (KernelsError, PrivacyError, ServiceError)
_request: ContextVar[str | None] = ContextVar("request", default=None)


@contextmanager
def about_request(request_id: str) -> Iterator[None]:
    """Add this request's id to every log line within the context, in this task and its threads."""
    token = _request.set(request_id)
    try:
        yield
    finally:
        _request.reset(token)


class TextLines(logging.Formatter):
    """One line of text for each record; an error's traceback follows on further lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        ids = " ".join(f"{name}={value}" for name, value in _ids(record).items())
        line = f"{iso_time(record.created)} {record.levelname.lower()} {record.getMessage()}"
        return "\n".join([f"{line} {ids}".rstrip(), *_where(record)])


class JsonLines(logging.Formatter):
    """One JSON object for each record, each on its own line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        plain: dict[str, Any] = {
            "time": iso_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_ids(record),
        }
        if where := _where(record):
            plain["error"] = where
        return json.dumps(plain, ensure_ascii=False)


def configuration(form: str, level: str) -> dict[str, Any]:
    """Return a configuration for `logging.config`; libraries log only warnings and errors."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": JsonLines if form == "json" else TextLines}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {
            "service": {"level": level.upper()},
            "uvicorn": {"level": "INFO" if level == "debug" else level.upper()},
        },
    }


def _ids(record: logging.LogRecord) -> dict[str, str]:
    given = {"request": _request.get(), **vars(record)}
    # A path may contain anything in place of an id; only values with the form of an id are logged.
    return {name: value for name in IDS if _ID.fullmatch(value := str(given.get(name)))}


def _where(record: logging.LogRecord) -> list[str]:
    """Return type and traceback locations of a record's error and of its causes."""
    error = record.exc_info[1] if record.exc_info else None
    told: list[str] = []
    while error is not None:
        message = f": {error}" if isinstance(error, _OURS) else ""
        if isinstance(error, OSError) and error.strerror:
            message = f": {error.strerror}"
        told.append(f"{type(error).__module__}.{type(error).__qualname__}{message}")
        stack: StackSummary = extract_tb(error.__traceback__)
        told += [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in stack]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return told
