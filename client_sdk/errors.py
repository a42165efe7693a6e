"""Every error that a hospital's side can cause, each with a stable code.

    ClientError
    └── TableSourceError          source.invalid      what was given as the table
        ├── NotATable             source.not_a_table
        ├── FileNotThere          source.not_found
        ├── UnknownSuffix         source.unknown_suffix
        ├── EmptySource           source.empty
        ├── UnreadableFile        source.unreadable
        ├── DuplicateColumns      source.duplicate_columns
        ├── DifferentColumns      source.different_columns
        └── DraftError            source.draft

What is *in* a table and does not fit its schema is `kernels.errors.TableRefused`. A message names
files, columns, lines and row groups, never what is in a cell.
"""

from typing import ClassVar


class ClientError(ValueError):
    """Root of the tree; `code` is stable across versions."""

    code: ClassVar[str] = "client"


# -- the table ------------------------------------------------------------------------------------


class TableSourceError(ClientError):
    """What was given as the table cannot be read as one."""

    code = "source.invalid"


class NotATable(TableSourceError):
    """An object that is no table, or a table of a kind that is not read here."""

    code = "source.not_a_table"


class FileNotThere(TableSourceError):
    """A path that leads to no file or folder."""

    code = "source.not_found"


class UnknownSuffix(TableSourceError):
    """A file whose name does not say that it is CSV or Parquet."""

    code = "source.unknown_suffix"


class EmptySource(TableSourceError):
    """A folder without tables, or a file without columns."""

    code = "source.empty"


class UnreadableFile(TableSourceError):
    """A file that is damaged, not permitted, or not what its suffix says."""

    code = "source.unreadable"


class DuplicateColumns(TableSourceError):
    """Two columns of one name."""

    code = "source.duplicate_columns"


class DifferentColumns(TableSourceError):
    """Files of one folder with different columns."""

    code = "source.different_columns"


class DraftError(TableSourceError):
    """A schema cannot be drafted: a column that was named is not there, or of no use."""

    code = "source.draft"
