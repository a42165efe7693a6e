"""The parts of the coordinator, as dependency types for the signatures of routes."""

from typing import Annotated

from fastapi import Depends, Request

from privacy.health_check import Check
from service.http.metrics import Metrics
from service.http.rate_limits import RateLimits
from service.http.shared_check import SharedCheck
from service.page.model_effects import ModelEffects
from service.prediction.prediction import Predictor
from service.runs.engine import Engine
from service.runs.runs import Runs
from service.runs.spool import Spool


async def _runs(request: Request) -> Runs:
    runs: Runs = request.app.state.runs
    return runs


async def _engine(request: Request) -> Engine:
    engine: Engine = request.app.state.engine
    return engine


async def _spool(request: Request) -> Spool:
    spool: Spool = request.app.state.spool
    return spool


async def _predictor(request: Request) -> Predictor:
    predictor: Predictor = request.app.state.predictor
    return predictor


async def _effects(request: Request) -> ModelEffects:
    effects: ModelEffects = request.app.state.effects
    return effects


async def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


async def _readiness(request: Request) -> SharedCheck[list[Check]]:
    check: SharedCheck[list[Check]] = request.app.state.readiness
    return check


async def _database_check(request: Request) -> SharedCheck[None]:
    check: SharedCheck[None] = request.app.state.database_check
    return check


async def _invitation_reads(request: Request) -> RateLimits:
    reads: RateLimits = request.app.state.invitation_reads
    return reads


RunsHere = Annotated[Runs, Depends(_runs)]
EngineHere = Annotated[Engine, Depends(_engine)]
SpoolHere = Annotated[Spool, Depends(_spool)]
PredictorHere = Annotated[Predictor, Depends(_predictor)]
EffectsHere = Annotated[ModelEffects, Depends(_effects)]
MetricsHere = Annotated[Metrics, Depends(_metrics)]
ReadinessCheckHere = Annotated[SharedCheck[list[Check]], Depends(_readiness)]
InvitationReadsHere = Annotated[RateLimits, Depends(_invitation_reads)]
DatabaseCheckHere = Annotated[SharedCheck[None], Depends(_database_check)]
