"""Times in requests and answers: ISO 8601 in UTC. Inside the service: seconds since 1970."""

from datetime import UTC, datetime


def iso_time(seconds: float) -> str:
    """Return a time as ISO 8601.

    >>> iso_time(0.0)
    '1970-01-01T00:00:00.000Z'
    """
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_time_if(seconds: float | None) -> str | None:
    """Return a time as ISO 8601, or None."""
    return None if seconds is None else iso_time(seconds)
