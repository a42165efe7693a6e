"""The hospital's table: whatever it is, read as `kernels.tables.records` reads, in bounded memory.

source        what every kind of table is: named columns, read again and again in pieces
opening       which kind a given object or path is
arrays        mappings of columns, numpy arrays with names
frames        pandas, polars, pyarrow
csv_file      a CSV file, streamed
parquet_file  a Parquet file, streamed by row groups
folder        a folder of such files, as one table
reading       a source by a schema: the site that takes part in a session
summary       the counts that a site's policy asks for
draft         a first schema for a table, to be edited
"""

from client_sdk.tables.draft import Draft, draft
from client_sdk.tables.opening import open_table
from client_sdk.tables.reading import SchemaStream, read_records, read_site
from client_sdk.tables.source import TableSource
from client_sdk.tables.summary import TableSummary, summarise

__all__ = [
    "Draft",
    "SchemaStream",
    "TableSource",
    "TableSummary",
    "draft",
    "open_table",
    "read_records",
    "read_site",
    "summarise",
]
