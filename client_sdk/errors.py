"""Every error that a person or a peer can cause in `client_sdk`, each with a stable code.

    ClientError                       client
    └── ModelError                    global_model.invalid
        ├── ModelNotFound             global_model.not_found
        ├── ModelNotSaved             global_model.not_saved
        ├── UnknownTarget             global_model.unknown_target
        ├── TableNotRead              global_model.table_not_read
        ├── TableNotWritten           global_model.table_not_written
        └── PlotUnavailable           global_model.plot

A message says what is wrong with which value and what to do; it never carries a patient's value,
nor key material, nor the secret of a link.
"""

from typing import ClassVar


class ClientError(Exception):
    """Root of the tree; `code` is stable across versions and travels over HTTP."""

    code: ClassVar[str] = "client"


# -- the global model


class ModelError(ClientError):
    """Something about a global model, its files, or what is asked of it is wrong."""

    code = "global_model.invalid"


class ModelNotFound(ModelError):
    """There is no model in a folder, or a part of it is missing."""

    code = "global_model.not_found"


class ModelNotSaved(ModelError):
    """A model could not be written; what was there before is still there."""

    code = "global_model.not_saved"


class UnknownTarget(ModelError):
    """A model does not predict a target of this name."""

    code = "global_model.unknown_target"


class TableNotRead(ModelError):
    """A table to predict is of a kind, or in a file, that cannot be read."""

    code = "global_model.table_not_read"


class TableNotWritten(ModelError):
    """Predictions could not be written; no half of them is left."""

    code = "global_model.table_not_written"


class PlotUnavailable(ModelError):
    """matplotlib, which plots need, is not installed."""

    code = "global_model.plot"
