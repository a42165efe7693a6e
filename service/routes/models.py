"""Models: admins list, name and delete them; readers get a model's card and bytes."""

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from service import models
from service.context import Here
from service.errors import (
    AliasInvalid,
    MembersOnly,
    ModelDamaged,
    NotCertified,
    NotFound,
    VarianceWithheld,
)
from service.http.access import Admin, MemberReader, Reader
from service.http.bodies import json_body
from service.http.declarations import BINARY_CONTENT, declares
from service.http.request_models import RequestModel
from service.http.times import iso_time
from service.prediction import methods
from service.prediction.variances import download_refusal
from service.routes.parts import PredictorHere
from service.runs import open_samples

router = APIRouter(prefix="/models", tags=["admins: models"])

_CARD = {"$ref": "#/components/schemas/ModelCard"}


class MethodOut(BaseModel):
    """A prediction method of a model, for `POST /predict`."""

    method: str
    ensembles: list[str] = Field(
        description="How the predictions of many sites are combined: `distilled`, by a student "
        "network; `open`, from the unmasked samples of the sites that share them. Empty for "
        "fedbnr, which is one model."
    )


class ModelOut(BaseModel):
    """A model in a list; its card has the details."""

    id: str
    session: str
    run: str
    created_at: str
    aliases: list[str]
    certified: bool = Field(description="Whether a quorum of hospitals has signed it.")
    members_only: bool = Field(description="Whether only hospitals have it.")
    methods: list[MethodOut] = Field(
        description="The default first; none if only hospitals have the model."
    )
    open_members: int = Field(
        description="How many hospitals currently share unmasked samples of their own models."
    )


class AliasIn(RequestModel):
    """The model that an alias shall refer to."""

    model: str


class UncertifiedIn(RequestModel):
    """Whether a model is served although no quorum of hospitals has signed it."""

    serve_uncertified: bool


class AliasOut(BaseModel):
    """An alias and the model that it refers to."""

    alias: str
    model: str


@router.get("", operation_id="listModels", summary="List the models")
def list_models(_: Admin, here: Here) -> list[ModelOut]:
    """List all models, newest first."""
    with here.database.reading() as connection:
        return [
            ModelOut(
                id=each.id,
                session=each.session_id,
                run=each.run_id,
                created_at=iso_time(each.created_at),
                aliases=list(each.aliases),
                certified=each.certified,
                members_only=each.members_only,
                methods=[]
                if each.members_only
                else [
                    MethodOut(method=one.method, ensembles=list(one.ensembles))
                    for one in methods.listed(models.card(connection, each.id), opened=shown > 0)
                ],
                open_members=shown,
            )
            for each in models.listed(connection)
            for shown in [len(open_samples.present(connection, each.id))]
        ]


@router.put("/aliases/{alias}", operation_id="setModelAlias", summary="Point an alias at a model")
@declares(NotFound, AliasInvalid)
def put_alias(
    _: Admin, alias: str, new: Annotated[AliasIn, json_body(AliasIn)], here: Here
) -> AliasOut:
    """Point an alias at a model; the change takes effect for all callers at once."""
    with here.database.changing() as connection:
        models.point(connection, alias, new.model, now=here.clock())
    return AliasOut(alias=alias, model=new.model)


@router.delete(
    "/aliases/{alias}", operation_id="deleteModelAlias", status_code=204, summary="Remove an alias"
)
@declares(NotFound)
def delete_alias(_: Admin, alias: str, here: Here) -> None:
    """Remove an alias; the model stays."""
    with here.database.changing() as connection:
        models.remove_alias(connection, alias)


@router.get(
    "/{name}",
    operation_id="getModelCard",
    summary="Read a model's card",
    tags=["callers", "members: rounds"],
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": _CARD}}}},
)
@declares(NotFound, MembersOnly)
def get_card(reader: Reader, name: str, here: Here) -> Response:
    """Return the card of a model, by id or alias."""
    with here.database.reading() as connection:
        text = models.card(connection, models.resolve(connection, name, reader))
    return Response(text, media_type="application/json")


@router.get(
    "/{name}/artifact",
    operation_id="downloadModel",
    summary="Download a model",
    tags=["callers", "members: rounds"],
    response_class=Response,
    responses={200: {"content": dict(BINARY_CONTENT)}},
)
@declares(NotFound, MembersOnly, VarianceWithheld, ModelDamaged)
def get_artifact(reader: Reader, name: str, here: Here) -> Response:
    """Return a model as a safetensors file; refused to callers who may not see its variances."""
    with here.database.reading() as connection:
        model_id = models.resolve(connection, name, reader)
        data = models.artifact(connection, model_id)
        if reader.caller_id is not None:
            model = models.load(connection, model_id).model
            refusal = download_refusal(reader, here.settings, model)
            if refusal is not None:
                raise refusal
    return Response(data, media_type="application/octet-stream")


@router.get(
    "/{name}/certificate",
    operation_id="downloadCertificate",
    summary="Download a model's certificate",
    tags=["callers", "members: rounds"],
    response_class=Response,
    responses={200: {"content": dict(BINARY_CONTENT)}},
)
@declares(NotFound, NotCertified)
def get_certificate(reader: Reader, name: str, here: Here) -> Response:
    """Return the signatures of the hospitals that vouch for a model (`veilgp verify`)."""
    with here.database.reading() as connection:
        model_id = models.resolve(connection, name, reader)
        found = models.certificate(connection, model_id)
    if found is None:
        raise NotCertified(f"No quorum of hospitals has signed the model {model_id}.")
    return Response(found, media_type="application/octet-stream")


@router.get(
    "/{name}/archive",
    operation_id="downloadArchive",
    summary="Download a model for members only",
    tags=["members: rounds"],
    response_class=Response,
    responses={200: {"content": dict(BINARY_CONTENT)}},
)
@declares(NotFound)
def get_archive(member: MemberReader, name: str, here: Here) -> Response:
    """Return a model for members only, which each of them can open with its own key.

    Only approved members of the model's session get it.
    """
    with here.database.reading() as connection:
        data = models.archive(connection, models.resolve(connection, name, member))
    return Response(data, media_type="application/octet-stream")


@router.patch(
    "/{name}",
    operation_id="allowUncertifiedModel",
    status_code=204,
    summary="Serve a model without a certificate",
)
@declares(NotFound)
def allow_uncertified(
    _: Admin, name: str, new: Annotated[UncertifiedIn, json_body(UncertifiedIn)], here: Here
) -> None:
    """Allow, or no longer allow, to serve a model that no quorum of hospitals has signed.

    `name` must be the id, not an alias.
    """
    with here.database.changing() as connection:
        models.allow_uncertified(connection, name, allowed=new.serve_uncertified)


@router.delete("/{name}", operation_id="deleteModel", status_code=204, summary="Delete a model")
@declares(NotFound)
def delete_model(_: Admin, name: str, here: Here, predictor: PredictorHere) -> None:
    """Delete a model and all aliases that point at it; `name` must be the id, not an alias."""
    with here.database.erasing() as connection:
        models.remove(connection, name)
    predictor.drop(name)
