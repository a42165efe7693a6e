"""The federated Gaussian process as scikit-learn estimators, in one process.

    model = FederatedRegressor().fit([north, south, west], target="stay")     a table for each site
    model = FederatedRegressor().fit(X, y, sites=hospital)                    a label for each row
    mean, std = model.predict(rows, return_std=True)

This is `simulate` under the names that scikit-learn's users know: for trying out what a federation
would give, beside other estimators, in pipelines and cross-validation. All tables are in this
process, so by default sums are added without masks (`secure=False`), which gives the same numbers
to the last bit and works with a single site; with `secure=True` the real secure sum runs, over at
least three sites.

The schema is drafted from the tables unless one is given: numbers are numeric columns, text with
few distinct labels is categorical, and columns of dates, of free text or without any cell are left
out. Such a schema depends on the rows; in a session people agree on one.

scikit-learn is needed by this module only: pip install 'veilgp[sklearn]'.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import PackageMissing
from client_sdk.model.outcomes import Floats
from client_sdk.simulation import Simulated, simulate
from client_sdk.tables.arrays import ArrayColumns
from client_sdk.tables.by_site import columns_of, divided, is_table, open_tables
from client_sdk.tables.column_seen import ColumnSeen
from client_sdk.tables.draft import look_at
from client_sdk.tables.schema_of import schema_of
from client_sdk.tables.source import TableSource
from kernels.rounds.program import Program
from kernels.rounds.site.dealing import Dealing
from kernels.tables.schema import Feature, Numeric, Schema
from kernels.tables.targets import AnyTarget, Binary, Classes, Count, Target
from privacy.securesum.terms import LEAST_COHORT

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        check_array,
        check_consistent_length,
        check_is_fitted,
        column_or_1d,
        validate_data,
    )
except ModuleNotFoundError as missing:
    raise PackageMissing(
        "the estimators need scikit-learn: pip install 'veilgp[sklearn]'"
    ) from missing

_UNIT = "1"
"""The unit of a number whose unit nobody has stated."""


class _Federated(BaseEstimator):
    """What both estimators have: their parameters, and tables that become a model.

    A subclass says which targets it predicts and how a target follows from a column.
    """

    _KINDS: tuple[type[AnyTarget], ...]

    def __init__(
        self,
        *,
        schema: Any = None,
        program: Program | Callable[[Schema], Program] | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        secure: bool = False,
        random_state: Any = None,
    ) -> None:
        self.schema = schema
        self.program = program
        self.epsilon = epsilon
        self.delta = delta
        self.secure = secure
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, target: str | None = None, sites: Any = None) -> Self:
        """Fit to one table per site and the name of the target, or to X and y.

        X: a list of tables, if `target` is given; otherwise an array or a frame.
        y: the targets of X. sites: a label for each row of X, of the site that has it; by default
        all rows are at one site.
        """
        agreed = self._agreed()
        if target is not None:
            if y is not None or sites is not None:
                raise ValueError("with target, X is a list of tables: leave y and sites out")
            tables = open_tables(X)
            schema = self._schema_of_tables(tables, target) if agreed is None else agreed
            if schema.targets[0].name != target:
                raise ValueError(
                    f"the schema's target is {schema.targets[0].name!r}, not {target!r}"
                )
            self.feature_names_in_ = np.array([each.name for each in schema.features], object)
            self.n_features_in_ = len(schema.features)
            self._by_name = True
        else:
            columns, values = self._validated(X, y)
            name = _unused("y", columns) if agreed is None else agreed.targets[0].name
            own, cells = self._target_of(name, values, agreed)
            schema = (
                _drafted([ArrayColumns(columns)], [*columns], own) if agreed is None else agreed
            )
            tables = divided({**columns, name: cells}, sites, len(values))
            self._by_name = False
        self.schema_ = schema
        self.n_sites_ = len(tables)
        if self.secure and len(tables) < LEAST_COHORT:
            raise ValueError(
                f"the secure sum needs at least {LEAST_COHORT} sites, and there are {len(tables)}: "
                "pass more tables or sites, or secure=False"
            )
        study = self.program(schema) if callable(self.program) else self.program or schema
        self.model_: Simulated = simulate(
            study,
            tables,
            self._dealing(),
            epsilon=self.epsilon,
            delta=self.delta,
            secure=self.secure,
        )
        self.program_ = self.model_.program
        return self

    def _agreed(self) -> Schema | None:
        """Return the schema that was given, by itself or in a program."""
        if isinstance(self.program, Program):
            agreed = self.program.schema
        elif self.schema is None:
            return None
        else:
            agreed = schema_of(self.schema)
        if len(agreed.targets) != 1 or not isinstance(agreed.targets[0], self._KINDS):
            kinds = " or ".join(kind.__name__ for kind in self._KINDS)
            raise ValueError(
                f"{type(self).__name__} predicts one target, a {kinds}; the schema has "
                f"{', '.join(type(each).__name__ for each in agreed.targets)}"
            )
        return agreed

    def _dealing(self) -> Dealing:
        if self.random_state is None:
            return Dealing.generate()
        return Dealing(check_random_state(self.random_state).bytes(32))

    def _schema_of_tables(self, tables: Sequence[TableSource], target: str) -> Schema:
        for table in tables:
            if target not in table.columns:
                raise ValueError(f"{table.name} has no column {target!r}: correct the target")
        everywhere = [
            name
            for name in tables[0].columns
            if name != target and all(name in table.columns for table in tables)
        ]
        own = self._target_seen(target, look_at(tables, [target])[target])
        return _drafted(tables, everywhere, own)

    def _validated(self, X: Any, y: Any) -> tuple[dict[str, Any], NDArray[Any]]:
        """Return the columns of X by name and the cells of y, as scikit-learn checks them."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: pass X "
                "and y, or a list of tables and the name of the target"
            )
        frame = columns_of(X)
        if frame is None:
            X, y = validate_data(
                self,
                X,
                y,
                dtype=np.float64,
                ensure_all_finite="allow-nan",
                ensure_min_samples=2,
                y_numeric=self._NUMERIC,
            )
            columns = {name: X[:, place] for place, name in enumerate(self._names())}
        else:
            validate_data(self, X, skip_check_array=True)
            check_consistent_length(X, y)
            columns = frame
            if self._NUMERIC:
                y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        return columns, column_or_1d(y, warn=True)

    def _names(self) -> list[str]:
        """Return the names of X's columns, in order."""
        own = getattr(self, "feature_names_in_", None)
        return [f"x{place}" for place in range(self.n_features_in_)] if own is None else [*own]

    def _table(self, X: Any) -> object:
        """Return rows to predict as a table whose columns have the schema's names."""
        check_is_fitted(self)
        if self._by_name and is_table(X):
            return X
        frame = columns_of(X)
        if frame is not None:
            validate_data(self, X, skip_check_array=True, reset=False)
            return frame
        rows = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return {name: rows[:, place] for place, name in enumerate(self._names())}

    def _predicted(self, X: Any) -> Any:
        table = self._table(X)
        return self.model_.predict(table)[self.schema_.targets[0].name]

    _NUMERIC: bool

    def _target_of(
        self, name: str, values: NDArray[Any], agreed: Schema | None
    ) -> tuple[AnyTarget, NDArray[Any]]:
        """Return the target that y is, and its cells as a table has them."""
        raise NotImplementedError

    def _target_seen(self, name: str, seen: ColumnSeen) -> AnyTarget:
        """Return the target that a column of tables is."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class FederatedRegressor(RegressorMixin, _Federated):
    """A Gaussian process of a number over the tables of several sites.

    schema: of the tables, in any form; by default drafted from them. With differential privacy its
        columns need bounds.
    program: what is computed: a `Program`, or a function that returns one for a schema; by default
        what the coordinator makes for a session that states none.
    epsilon, delta: the most that is spent on any one patient or row; by default nothing is noised.
    secure: whether the real secure sum runs.
    random_state: decides which rows are held out for recalibration; not the noise, which is drawn
        as at a hospital.

    Learned: `model_` (with `card`, `save`, `predict` and its intervals), `schema_`, `program_`,
    `n_sites_`, `n_features_in_`, and `feature_names_in_` if the columns have names.
    """

    _KINDS = (Target, Count)
    _NUMERIC = True

    def predict(self, X: Any, *, return_std: bool = False) -> Any:
        """Return means, (n,); with `return_std` also standard deviations of new observations."""
        found = self._predicted(X)
        return (found.mean, np.sqrt(found.variance)) if return_std else found.mean

    def _target_of(
        self, name: str, values: NDArray[Any], agreed: Schema | None
    ) -> tuple[AnyTarget, NDArray[Any]]:
        return (Target(name, _UNIT) if agreed is None else agreed.targets[0]), values

    def _target_seen(self, name: str, seen: ColumnSeen) -> AnyTarget:
        if not seen.numeric:
            raise ValueError(f"the target {name!r} has cells that are not numbers")
        return Target(name, _UNIT)


class FederatedClassifier(ClassifierMixin, _Federated):
    """A Gaussian process of a yes or no, or of classes, over the tables of several sites.

    Its parameters and what it learns are those of `FederatedRegressor`, and `classes_`.
    """

    _KINDS = (Binary, Classes)
    _NUMERIC = False

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each of `classes_`, (n, K)."""
        chances: Floats = self._predicted(X).probabilities
        return chances

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row, (n,)."""
        chances = self.predict_proba(X)
        classes: NDArray[Any] = self.classes_[chances.argmax(1)]
        return classes

    def _target_of(
        self, name: str, values: NDArray[Any], agreed: Schema | None
    ) -> tuple[AnyTarget, NDArray[Any]]:
        check_classification_targets(values)
        classes, which = np.unique(values, return_inverse=True)
        if agreed is None:
            self.classes_ = classes
            levels = tuple(map(str, range(len(classes))))
            return _levelled(name, levels), np.array(levels, object)[which]
        self.classes_ = _values(agreed.targets[0], numeric=np.issubdtype(classes.dtype, np.number))
        return agreed.targets[0], values

    def _target_seen(self, name: str, seen: ColumnSeen) -> AnyTarget:
        if seen.labels is None:
            raise ValueError(f"the target {name!r} has too many distinct labels to be classes")
        levels = sorted(seen.labels, key=float if seen.numeric else str)
        target = _levelled(name, tuple(levels))
        self.classes_ = _values(target, numeric=seen.numeric)
        return target


def _levelled(name: str, levels: tuple[str, ...]) -> AnyTarget:
    """Return a target with these levels; of two, the second is the event."""
    if len(levels) < 2:
        raise ValueError(f"{name} has one class only: nothing is to be predicted")
    return Binary(name, levels, levels[1]) if len(levels) == 2 else Classes(name, levels)


def _values(target: AnyTarget, *, numeric: bool) -> NDArray[Any]:
    """Return the levels of a target as `classes_`: numbers if its column has numbers."""
    levels = target.levels if isinstance(target, Binary | Classes) else ()
    if not numeric:
        return np.array(levels, object)
    numbers = np.array(levels, np.float64)
    whole = numbers.astype(np.int64)
    return whole if (whole == numbers).all() else numbers


def _drafted(sources: Sequence[TableSource], names: Sequence[str], target: AnyTarget) -> Schema:
    """Return a schema of what these columns show, without units."""
    features: list[Feature] = []
    for name, seen in look_at(sources, names).items():
        feature = seen.feature(name)
        if feature is not None:
            known = replace(feature, unit=_UNIT) if isinstance(feature, Numeric) else feature
            features.append(known)
    if not features:
        raise ValueError("there are no usable columns besides the target")
    return Schema(tuple(features), (target,))


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    """Return a name that no column has."""
    while name in taken:
        name += "_"
    return name
