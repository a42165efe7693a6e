"""Times at the edge: ISO 8601 in UTC; inside they are seconds since 1970."""

from datetime import UTC, datetime


def iso_time(seconds: float) -> str:
    """Show a time.

    >>> iso_time(0.0)
    '1970-01-01T00:00:00.000Z'
    """
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_time_if(seconds: float | None) -> str | None:
    """Show a time, if there is one."""
    return None if seconds is None else iso_time(seconds)
