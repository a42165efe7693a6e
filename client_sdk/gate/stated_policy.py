"""What a site's policy says: its lines, read strictly and checked one by one.

`client_sdk.gate.policy` compares them with what a session requests. That needs the algorithms, and
so torch; what only reads a policy (`veilgp doctor`, `veilgp ledger`) does not wait for it.

The default minimums are from docs/threats.md (A4, A12): with fewer rows than features the sums
*are* the data. The cohort counts members whose keys are confirmed.
"""

import tomllib
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from pathlib import Path
from typing import Self

from client_sdk.errors import PolicyFileError
from client_sdk.gate import refusals
from client_sdk.gate.dictionary import Dictionary
from client_sdk.gate.recipes import Recipes
from kernels.rounds.stated.default_limits import LEAST_ROWS, RATIO, ROWS_PER_FEATURE
from kernels.rounds.stated.names import ALGORITHM_NAMES
from privacy.errors import LedgerError
from privacy.ledger import Budget

_FLAGS = (
    "without_differential_privacy",
    "open_sums",
    "served_model",
    "open_ensemble",
    "trust_first_use",
    "exact_and_private",
)
_COUNTS = (
    "least_rows",
    "least_rows_held_out",
    "least_level_rows",
    "max_sums",
    "max_runs",
    "max_programs",
)
_RATIOS = (
    "rows_per_feature",
    "rows_per_feature_held_out",
    "coordinator_ratio",
    "hospital_ratio",
)


@dataclass(frozen=True)
class StatedPolicy:
    """What this site allows. Every default denies, or is the minimum given in docs/threats.md."""

    least_cohort: int = 5
    """Minimum number of members with confirmed keys in every sum, including this hospital."""
    least_colluders: int | None = None
    """Minimum number of members that may collude with the coordinator and still learn only the sum.
    Without this line: a third of the other members, ⌊(n − 1)/3⌋ of n."""
    least_rows: int = LEAST_ROWS
    """Minimum number of rows of this hospital that are summed together: of its training rows and,
    if a stage sums held-out rows without the others (`completion`), of these as well."""
    least_rows_held_out: int = 5
    """Minimum number of rows in each part that is held out and scored, unless the part is empty.
    Where held-out rows are summed too, `least_rows` applies to them.
    Only their total leaves, but the other members may have no such rows, and the error for one
    patient reveals that patient's outcome."""
    rows_per_feature: float = ROWS_PER_FEATURE
    """Minimum number of rows that are summed together per feature of the kernel, in addition to the
    limits on numbers that become known: of training rows and, if a stage sums held-out rows without
    the others (`completion`), of these as well. If two kernels may be mixed the features of both
    count, since both have a matrix of products over these rows."""
    rows_per_feature_held_out: float | None = None
    """Another number for held-out rows that a stage sums without the others. Without this line it
    is `rows_per_feature`. With fewer rows than features whoever reads the sums can test who is
    among them, and so can whoever has the model: it has the layers with and without them."""
    least_level_rows: int = 10
    """Minimum number of rows that are summed together for each level that occurs in a categorical
    column."""
    algorithms: tuple[str, ...] = ()
    """Algorithms whose sums are answered, also where another algorithm asks for them: a search
    trains its kernels by `exact`, and is refused without that."""
    columns: tuple[str, ...] = ()
    """Columns that these algorithms may read."""
    programs: tuple[str, ...] = ()
    """SHA-256 of the programs that are approved: only their sessions are joined."""
    parents: tuple[str, ...] = ()
    """Ids of models that a run may start from, besides those that this hospital obtained itself,
    and those that a quorum of members with confirmed keys has signed."""
    coordinator_ratio: float = RATIO
    """Maximum number of exact numbers that become known to the coordinator, over all sessions,
    divided by the cells of the other members' rows: rows that the program states × columns."""
    hospital_ratio: float = RATIO
    """The same for numbers that become known to each hospital."""
    max_sums: int = 0
    """Maximum number of vectors that are ever computed for exact sums of a data source, over all
    sessions; those that were abandoned count too."""
    max_runs: int = 10
    """Maximum number of runs over a data source, over all sessions."""
    max_programs: int = 10
    """Maximum number of distinct programs over a data source, over all sessions. A run that starts
    from another model is another program."""
    exact_and_private: bool = False
    """Whether one table may have exact sums and sums with noise. The difference between the two
    undoes the noise."""
    without_differential_privacy: bool = False
    """Whether exact sums, without noise, are allowed."""
    open_sums: bool = False
    """Whether the coordinator may read exact sums. Without this line they must be blind. Approving
    a program does not approve a session's terms, which the coordinator chooses: this line does, and
    the next one. With differential privacy noise covers sums and model, and neither is needed."""
    served_model: bool = False
    """Whether the coordinator may have the model of exact sums. Without this line the model must be
    for members only."""
    epsilon: float | None = None
    """With differential privacy: the maximum that may ever be spent on any one patient of a data
    source, over all sessions and coordinators, at `delta`. Nothing is spent unless both are set."""
    delta: float | None = None
    """The probability that the promise of `epsilon` does not cover."""
    patient: str | None = None
    """With differential privacy: the column that identifies the patient of a row, which a session
    must use as its unit. Without this line a session may treat each row as a separate patient; a
    patient with many rows is then covered by `epsilon` only for each row separately."""
    open_ensemble: bool = False
    """Whether a session that requests samples of this hospital's own model gets them, not masked.
    Without this line the hospital still takes part in the sums."""
    trust_first_use: bool = False
    """Whether a member's key counts as confirmed when it is seen for the first time. This gives up
    what rests on the group key: a member that the coordinator invented would hold it, and could
    forge totals."""
    least_answer_s: float = 0.05
    """Minimum time after which an answer leaves, in seconds; the times are measured for each stage
    (`answer_times`). 0 turns waiting off, and then the time of an answer depends on the rows."""
    row_band: int | None = None
    """A power of two, at least twice the rows: the number of rows that answer times are measured
    for, chosen once for a data source (`gate.row_band`). It is required unless nothing waits
    (`least_answer_s` = 0), because a value computed from the rows would show them."""
    expires: date | None = None
    """The last day on which anything is answered."""
    consents: tuple[str, ...] = ()
    """Names of the algorithms that may reveal this site's own numbers."""
    dictionary: Dictionary = field(default_factory=lambda: Dictionary({}))
    """What each column is: a session's schema must contain it. In a file: tables such as
    [dictionary.age], or the path of another file, relative to the policy."""
    recipes: Recipes = field(default_factory=Recipes)
    """The range of kernels, training and splits. In a file: the table [recipes]."""

    def __post_init__(self) -> None:
        for name in ("algorithms", "columns", "consents", "programs", "parents"):
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, tuple | list):
                raise PolicyFileError(f"{name} must be a list of names, not {given!r:.60}")
            if not all(isinstance(each, str) and each for each in given):
                raise PolicyFileError(f"every name in {name} must be non-empty text")
            object.__setattr__(self, name, tuple(given))
        for name in ("least_cohort", "least_colluders", *_COUNTS):
            number = getattr(self, name)
            if name == "least_colluders" and number is None:
                continue
            if type(number) is not int or number < 0:
                raise PolicyFileError(
                    f"{name} must be an integer of at least 0, not {number!r:.60}"
                )
        if self.patient is not None and not (isinstance(self.patient, str) and self.patient):
            raise PolicyFileError(f"patient must be the name of a column, not {self.patient!r:.60}")
        for name in _RATIOS:
            number = getattr(self, name)
            if name == "rows_per_feature_held_out" and number is None:
                continue
            if type(number) not in (int, float) or not 0 <= number < float("inf"):
                raise PolicyFileError(f"{name} must be a number of at least 0, not {number!r:.60}")
        if type(self.least_answer_s) not in (int, float) or not 0 <= self.least_answer_s <= 3600:
            raise PolicyFileError(
                f"least_answer_s must be a number from 0 to 3600, not {self.least_answer_s!r:.60}"
            )
        band = self.row_band
        if band is not None and (type(band) is not int or band < 1 or band & (band - 1)):
            raise PolicyFileError(f"row_band must be a power of two, not {band!r:.60}")
        if (self.epsilon is None) != (self.delta is None):
            raise PolicyFileError("epsilon and delta belong together: set both or neither")
        if self.epsilon is not None and self.delta is not None:
            try:
                Budget(self.epsilon, self.delta)
            except LedgerError as error:
                raise PolicyFileError(
                    f"epsilon and delta are not a valid budget: {error}"
                ) from error
        for name in _FLAGS:
            if type(getattr(self, name)) is not bool:
                raise PolicyFileError(f"{name} must be true or false")
        if not isinstance(self.dictionary, Dictionary) or not isinstance(self.recipes, Recipes):
            raise PolicyFileError("dictionary must be a Dictionary, and recipes must be Recipes")
        if self.expires is not None and (
            not isinstance(self.expires, date) or isinstance(self.expires, datetime)
        ):
            raise PolicyFileError("expires must be a date such as 2027-12-31, without quotes")
        for name in (*self.algorithms, *self.consents):
            if name not in ALGORITHM_NAMES:
                raise PolicyFileError(
                    f"unknown algorithm {name!r:.60}; the installed algorithms are "
                    f"{', '.join(sorted(ALGORITHM_NAMES))}"
                )

    @classmethod
    def from_toml(cls, text: str, *, folder: Path | None = None) -> Self:
        """Read a policy; an unknown line is an error: a misspelt one would silently deny.

        folder: the policy's folder, to which the path of a data dictionary is relative.
        """
        try:
            plain = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PolicyFileError(f"this policy is not valid TOML: {error}") from error
        known = [own.name for own in fields(cls)]
        if unknown := [name for name in plain if name not in known]:
            raise PolicyFileError(
                f"this policy has unknown lines: {', '.join(map(repr, unknown))}; known lines are "
                f"{', '.join(known)}"
            )
        if "dictionary" in plain:
            plain["dictionary"] = _dictionary(plain["dictionary"], folder)
        if "recipes" in plain:
            plain["recipes"] = Recipes.of(plain["recipes"])
        return cls(**plain)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a policy from a file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyFileError(f"cannot read the policy {str(path)!r}: {error}") from error
        return cls.from_toml(text, folder=Path(path).parent)

    def rows_for_each_feature(self, *, trained: bool) -> float:
        """Return the number of rows for each feature, of training rows or of held-out rows."""
        other = self.rows_per_feature_held_out
        return self.rows_per_feature if trained or other is None else other

    @property
    def budget(self) -> Budget:
        """What may be spent on any one patient of a data source."""
        if self.epsilon is None or self.delta is None:
            raise refusals.budget_missing()
        return Budget(self.epsilon, self.delta)


def _dictionary(given: object, folder: Path | None) -> Dictionary:
    if not isinstance(given, str):
        return Dictionary.of(given)
    if folder is None and not Path(given).is_absolute():
        raise PolicyFileError(
            f"dictionary = {given!r:.60} is relative to the policy's file: read the policy from a "
            "file, or write [dictionary.COLUMN] tables"
        )
    return Dictionary.read((folder or Path()) / given)
