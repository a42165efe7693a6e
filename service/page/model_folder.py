"""A model as one file to download: a zip with the folder that `veilgp predict` reads.

    <model id>.zip
      <model id>/card.json                what the model is
      <model id>/<SHA-256>.safetensors    its tensors
      <model id>/<model id>.certificate   who vouches for it, if anybody does

Only an admin gets it: the API gives it to callers by another rule (`prediction.variances`).
"""

import io
import zipfile

from sqlalchemy import Connection

from service import models


def zipped(connection: Connection, model_id: str) -> bytes:
    """Return the zip; raise if the model is damaged, or not here because only hospitals have it."""
    artifact = models.load(connection, model_id)
    files = {
        "card.json": models.card(connection, model_id).encode(),
        f"{artifact.card.artifact}.safetensors": models.artifact(connection, model_id),
    }
    certificate = models.certificate(connection, model_id)
    if certificate is not None:
        files[f"{model_id}.certificate"] = certificate
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"{model_id}/{name}", data)
    return packed.getvalue()
