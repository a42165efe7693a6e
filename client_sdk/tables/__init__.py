"""The hospital's table, of any supported type, read in bounded memory by a schema.

source        the interface of every table: named columns, read repeatedly in pieces
opening       the type of a given object or path
arrays        mappings of columns, numpy arrays with names
frames        pandas, polars, pyarrow
csv_file      a CSV file, streamed
parquet_file  a Parquet file, streamed by row groups
folder        a folder of such files, as one table
schema_stream  the columns of a source that a schema names, as cells
reading       a source read with a schema: the site that takes part in a session
summary       the counts that a site's policy limits, and how its outcomes are read
draft         a draft schema for a table, to be edited
merge         the drafts of several sites as one schema
checking/     a table compared with a schema, column by column
schema_of     a schema in any of the forms in which people have one
by_site       tables of several sites: a list, or rows with labels
"""
