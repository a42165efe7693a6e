"""The JSON answers of `/predict`, as the contract describes them.

Each target is an object with the numbers of its kind (`kernels.outcomes.named_parts`): a list
with one number for each row, an object with such a list for each level of classes, or, at the edges
of a time to an event, a list of numbers for each row.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Numbers = list[float]
ByLevel = dict[str, Numbers]
ByRow = list[Numbers]
Kind = Literal["conformal", "student_t", "gaussian"]
Ensemble = Literal["distilled", "open"]


class IntervalOut(BaseModel):
    """A central interval for each row; null for an unbounded end."""

    level: float
    kind: Kind
    lower: list[float | None]
    upper: list[float | None]


class SetsOut(BaseModel):
    """A conformal set for each row: the names of levels that may be the outcome, perhaps none."""

    level: float
    sets: list[list[str]]


class RealOut(BaseModel):
    """A real number's predictions in its unit; if there are no variances, they are null.

    Methods other than fedbnr have one variance; their latent and noise variance are null.
    """

    name: str
    kind: Literal["real"]
    unit: str
    mean: Numbers
    variance: Numbers | None = Field(
        description="Variance of a new observation. fedbnr: latent_variance + noise_variance, "
        "calibrated. Other methods: uncertainty of the combined sites and noise together, not "
        "recalibrated."
    )
    variance_of: Literal["row", "average"] | None = Field(
        description="Of what the variances and intervals are. row: each row's own, of the model. "
        "average: the average over patients, the same for every row, because those of single rows "
        "are withheld from this caller. Intervals then contain about the level's share of "
        "patients, and are too narrow for unusual ones."
    )
    latent_variance: Numbers | None
    noise_variance: Numbers | None
    intervals: list[IntervalOut] | None


class BinaryOut(BaseModel):
    """Probabilities and sets of a yes or no; if variances are withheld, all else is null."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "readmitted",
                    "kind": "binary",
                    "unit": "1",
                    "event": "yes",
                    "mean": [0.18],
                    "probabilities": {"no": [0.82], "yes": [0.18]},
                    "variance": [0.0009],
                    "latent_mean": [-1.55],
                    "latent_variance": [0.041],
                    "sets": [{"level": 0.9, "sets": [["no", "yes"]]}],
                }
            ]
        }
    )

    name: str
    kind: Literal["binary"]
    unit: str
    event: str = Field(description="The level whose probability is the mean.")
    mean: Numbers
    probabilities: ByLevel
    variance: Numbers | None = Field(description="Of the probability, which is uncertain.")
    latent_mean: Numbers | None = Field(description="Of the logit of the probability.")
    latent_variance: Numbers | None
    sets: list[SetsOut]


class ClassesOut(BaseModel):
    """Probabilities and sets of classes; if variances are withheld, everything else is null."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "discharged",
                    "kind": "classes",
                    "unit": "1",
                    "mean": {"home": [0.7], "transfer": [0.2], "hospice": [0.1]},
                    "probabilities": {"home": [0.7], "transfer": [0.2], "hospice": [0.1]},
                    "variance": {"home": [0.002], "transfer": [0.001], "hospice": [0.001]},
                    "latent_mean": {"home": [1.1], "transfer": [-0.1], "hospice": [-0.8]},
                    "latent_variance": {"home": [0.03], "transfer": [0.04], "hospice": [0.06]},
                    "sets": [{"level": 0.9, "sets": [["home", "transfer"]]}],
                }
            ]
        }
    )

    name: str
    kind: Literal["classes"]
    unit: str
    mean: ByLevel
    probabilities: ByLevel
    variance: ByLevel | None = Field(description="Of the probabilities, which are uncertain.")
    latent_mean: ByLevel | None = Field(description="Of each class's logit.")
    latent_variance: ByLevel | None
    sets: list[SetsOut]


class CountOut(BaseModel):
    """Expected counts; if variances are withheld, everything else is null."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "visits",
                    "kind": "count",
                    "unit": "visits",
                    "mean": [2.4],
                    "variance": [3.9],
                    "expectation_variance": [0.08],
                    "latent_mean": [0.87],
                    "latent_variance": [0.014],
                    "intervals": [
                        {"level": 0.9, "kind": "conformal", "lower": [0.0], "upper": [6.0]}
                    ],
                }
            ]
        }
    )

    name: str
    kind: Literal["count"]
    unit: str
    mean: Numbers = Field(description="The expected count, for the table's exposures or for 1.")
    variance: Numbers | None = Field(description="Of a new count.")
    expectation_variance: Numbers | None = Field(description="Of the expected count.")
    latent_mean: Numbers | None = Field(description="Of the logarithm of the rate.")
    latent_variance: Numbers | None
    intervals: list[IntervalOut] | None


class SurvivalOut(BaseModel):
    """The probability that the event comes later than each of the edges, by row."""

    edges: Numbers
    mean: ByRow
    variance: ByRow


class TimeToEventOut(BaseModel):
    """The risk by the horizon, and survival; if variances are withheld, only the risk."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "days",
                    "kind": "time_to_event",
                    "unit": "d",
                    "horizon": 30,
                    "mean": [0.31],
                    "risk": [0.31],
                    "variance": [0.0012],
                    "latent_mean": [[-2.2, -2.0, -1.9]],
                    "latent_variance": [[0.05, 0.06, 0.08]],
                    "survival": {
                        "edges": [10, 20, 40],
                        "mean": [[0.89, 0.78, 0.6]],
                        "variance": [[0.0004, 0.0008, 0.0017]],
                    },
                    "median": [None],
                }
            ]
        }
    )

    name: str
    kind: Literal["time_to_event"]
    unit: str
    horizon: float
    mean: Numbers = Field(description="The risk: the probability of the event by the horizon.")
    risk: Numbers = Field(description="The same as the mean.")
    variance: Numbers | None = Field(description="Of the risk, which is uncertain.")
    latent_mean: ByRow | None = Field(description="Of the logits of the hazards before each edge.")
    latent_variance: ByRow | None
    survival: SurvivalOut | None
    median: list[float | None] | None = Field(description="Null for a row beyond the last edge.")


TargetOut = Annotated[
    RealOut | BinaryOut | ClassesOut | CountOut | TimeToEventOut, Field(discriminator="kind")
]


class WithheldOut(BaseModel):
    """Why the variances are not those of the rows, and what an admin can do."""

    code: str
    detail: str


class PredictResponse(BaseModel):
    """The predictions, in the order of the request's rows."""

    model: str = Field(description="The model's id, also if the request named an alias.")
    method: str = Field(description="The method that was used.")
    ensemble: Ensemble | None = Field(
        description="How the sites' predictions were combined; null for fedbnr."
    )
    members: int | None = Field(
        description="Open ensemble: how many hospitals are in it now; otherwise null."
    )
    cohort: int | None = Field(
        description="Open ensemble: how many hospitals took part in the run; otherwise null."
    )
    rows: int
    targets: list[TargetOut] = Field(description="In the order of the model's schema.")
    unpredicted: list[str] = Field(
        description="Targets of the model that the method does not predict: only fedbnr predicts "
        "outcomes, that is, targets that are not real numbers."
    )
    extrapolates: list[bool] = Field(
        description="For each row: whether any of its numbers is outside its column's bounds."
    )
    withheld: WithheldOut | None
