"""A spec defines a kernel, survives JSON, and refuses invalid values."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import NewerSpec, SpecError, UnknownArchitecture
from kernels.features.spec import Architecture, Ending, KernelSpec, Normaliser
from tests.kernels.features.specs import EVERY_SPEC


@pytest.mark.parametrize("spec", EVERY_SPEC.values(), ids=EVERY_SPEC)
def test_json_gives_the_same_spec_in_one_canonical_form(spec: KernelSpec) -> None:
    again = KernelSpec.from_json(spec.to_json())
    assert again == spec
    assert again.to_json() == spec.to_json()
    assert json.loads(spec.to_json())["version"] == 1


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_no_text_makes_anything_but_a_spec_or_a_spec_error(text: str) -> None:
    with contextlib.suppress(SpecError):
        KernelSpec.from_json(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
FIELDS = ["version", "inputs", "architecture", "samples", "seed", "hidden", "latent", "offset"]
FIELDS += ["linear_part"]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_no_document_makes_anything_but_a_spec_or_a_spec_error(document: object) -> None:
    with contextlib.suppress(SpecError):
        KernelSpec.from_json(json.dumps(document))


def _document(**changes: object) -> str:
    return json.dumps({"version": 1, "inputs": 2, **changes})


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("{", SpecError, "not valid JSON"),
        ("[" * 100_000, SpecError, "not valid JSON"),
        ("[]", SpecError, "JSON object"),
        (_document(version=2), NewerSpec, "upgrade veilgp"),
        (_document(version=True), SpecError, "version"),
        (_document(version=None), SpecError, "version"),
        (_document(architecture="rfb"), UnknownArchitecture, "choose one of rbf"),
        (_document(architecture=["rbf"]), UnknownArchitecture, "choose one of"),
        (_document(normaliser="none"), SpecError, "choose one of unbiased"),
        (_document(samples=1), SpecError, "samples must be an integer from 2"),
        (_document(samples=True), SpecError, "samples"),
        (_document(samples=10**9), SpecError, "samples"),
        (_document(inputs=0), SpecError, "inputs"),
        (_document(inputs=2.0), SpecError, "inputs"),
        (_document(seed=-1), SpecError, "seed"),
        (_document(hidden=[0]), SpecError, "hidden"),
        (_document(hidden=7), SpecError, "hidden"),
        (_document(latent=0), SpecError, "latent"),
        (_document(frequency_scale=float("nan")), SpecError, "frequency_scale"),
        (
            _document(frequency_scale="1"),
            SpecError,
            "frequency_scale must be a positive finite number",
        ),
        (_document(architecture="polynomial", offset=-1), SpecError, "offset"),
        (_document(frequency_scale=10**400), SpecError, "frequency_scale"),
        (_document(hidden=[10**6, 10**6]), SpecError, "choose smaller sizes"),
        (_document(architecture="rbf", inputs=10**6, samples=10**6), SpecError, "smaller"),
        (_document(hidden=[2] * 100), SpecError, "layers"),
        (_document(architecture="rbf", hidden=[3]), SpecError, "rbf kernel does not use hidden"),
        (_document(linear_part=1), SpecError, "linear_part must be true or false"),
        (
            _document(architecture="linear", samples=10),
            SpecError,
            "linear kernel does not use samples",
        ),
        (_document(architecture="linear", linear_part=True), SpecError, "not use linear_part"),
        (_document(lengthscale=2.0), SpecError, "use it: exponential"),
        (_document(colour="red"), SpecError, "unknown fields"),
        (json.dumps({"version": 1}), SpecError, "inputs is missing"),
    ],
)
def test_what_is_wrong_is_named(text: str, error: type[SpecError], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        KernelSpec.from_json(text)
    assert type(caught.value) is error


def test_only_bounded_features_declare_a_bound() -> None:
    bounds = {name: spec.squared_norm_bound for name, spec in EVERY_SPEC.items()}
    unbounded = {name for name, bound in bounds.items() if bound is None}
    alone = {"exponential", "polynomial", "polynomial-3", "replicated-multiply-linear"}
    assert unbounded == alone | {f"{name}+linear" for name in alone}
    assert bounds["rbf"] == 1
    thesis = KernelSpec(inputs=1, samples=11, normaliser=Normaliser.THESIS)
    assert thesis.squared_norm_bound == pytest.approx(1.1)
    wide = KernelSpec(
        architecture=Architecture.REPLICATED, inputs=1, latent=2, ending=Ending.LINEAR
    )
    assert wide.squared_norm_bound is None
