"""The limit of rows in one prediction request."""

from service.errors import TableTooLong


def check_rows(rows: int, most: int) -> None:
    """Refuse a table with more than `most` rows."""
    if rows > most:
        raise TableTooLong(
            f"The table must have at most {most} rows in one request, not {rows}: send it in parts."
        )
