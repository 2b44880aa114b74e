"""The contract checks that every setting must pass. Each promise is one sentence a person can read.

A check raises ContractError in plain words, or passes. `run_checks` turns any other exception into a broken promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from evidence.contracts import (
    Case,
    CaseFile,
    EvidenceSetting,
    Figure,
    Labelled,
    Observation,
    Prediction,
    Readout,
    Table,
    Text,
)
from evidence.errors import ContractError, DataError
from evidence.values import canonical_json, sha256_of

CASES_LOOKED_AT = 3
"""Checks that are slow look at the first cases only."""


class CheckResult(NamedTuple):
    """One check: its name, what it promises, whether the component keeps it, and what it breaks otherwise."""

    check: str
    promise: str
    passed: bool
    detail: str


class SettingUnderTest(NamedTuple):
    """A setting as the checks need it: its case file, and a way to open it afresh (with another case file, too)."""

    case_file: CaseFile
    open: Callable[[CaseFile], EvidenceSetting]


def run_checks(checks: Sequence[Callable[[Any], None]], subject: Any) -> list[CheckResult]:
    """Run every check; a check's promise is the first line of its docstring."""
    results = []
    for check in checks:
        promise = (check.__doc__ or check.__name__).strip().splitlines()[0]
        try:
            check(subject)
        except ContractError as error:
            results.append(CheckResult(check.__name__, promise, False, str(error)))
        except Exception as error:
            results.append(CheckResult(check.__name__, promise, False, f"it raised {type(error).__name__}: {error}"))
        else:
            results.append(CheckResult(check.__name__, promise, True, ""))
    return results


def check_truth(readouts: Sequence[Readout], truth: Sequence[Labelled]) -> None:
    """Raise ContractError unless truth answers every readout, in order, with the label that its value has."""
    _same("truth", [t.readout for t in truth], [r.id for r in readouts])
    for readout, answer in zip(readouts, truth, strict=True):
        if answer.label not in readout.labels:
            raise ContractError(f"truth of {readout.id!r} is {answer.label!r}; expected one of {list(readout.labels)}")
        if readout.numeric and (answer.value is None or readout.classify(answer.value) != answer.label):
            raise ContractError(f"truth of {readout.id!r}: label {answer.label!r} does not follow from {answer.value}")


def check_observation(case: Case, measurement: str, observation: Observation) -> None:
    """Raise ContractError unless an observation names its measurement and is measured, or missing with a reason."""
    entry = case.measurement(measurement)
    _same("observation", [observation.measurement, observation.readout], [entry.id, entry.readout])
    if observation.status == "missing" and (observation.value is not None or not observation.reason):
        raise ContractError(f"observation {measurement!r} is missing: it has a reason and no value")
    numeric = entry.readout is not None and case.readout(entry.readout).numeric
    if observation.status == "measured" and numeric and (observation.value is None or observation.se is None):
        raise ContractError(
            f"observation {measurement!r} measures a numeric readout: it has a value and a standard error"
        )


def check_predictions(what: str, readouts: Sequence[str], predictions: Sequence[Prediction]) -> None:
    """Raise ContractError unless there is one finite prediction for every readout, in order."""
    _same(what, [p.readout for p in predictions], list(readouts))
    for p in predictions:
        if not (math.isfinite(p.mean) and math.isfinite(p.sd)):
            raise ContractError(f"{what} of {p.readout!r} is not finite: mean {p.mean}, sd {p.sd}")


def check_predicted(readouts: Sequence[Readout], predicted: Iterable[str]) -> None:
    """Raise ContractError where a readout that is predicted is categorical: a number stands for none of its labels."""
    wrong = sorted({r.id for r in readouts if not r.numeric}.intersection(predicted))
    if wrong:
        raise ContractError(f"readout {wrong[0]!r} is categorical, and there is a prediction of its value")


def _same(what: str, got: object, expected: object) -> None:
    if got != expected:
        raise ContractError(f"{what}: expected {expected}, got {got}")


# --- the suite ---------------------------------------------------------------------------------------------------


def check_cases_are_the_files(subject: SettingUnderTest) -> None:
    """The cases are those of the case file, in its order."""
    _same("cases", subject.open(subject.case_file).cases(), subject.case_file.cases)


def check_other_data_is_refused(subject: SettingUnderTest) -> None:
    """A case file that was frozen on other data is refused with a DataError."""
    other = subject.case_file.model_copy(update={"data": dict.fromkeys(subject.case_file.data, "0" * 64)})
    if not subject.case_file.data:
        raise ContractError("the case file names no data hash, so other data cannot be told from the right one")
    try:
        subject.open(other)
    except DataError:
        return
    raise ContractError("it opened a case file whose data hashes are wrong")


def check_evidence_is_pure(subject: SettingUnderTest) -> None:
    """The same case gives the same evidence, to the byte, whenever and however often it is asked for."""
    first, second = subject.open(subject.case_file), subject.open(subject.case_file)
    for case in _some(first):
        shown = first.evidence(case, ("table", "figure"))
        for other in (first.evidence(case, ("table", "figure")), second.evidence(case, ("table", "figure"))):
            _same(f"parts of case {case.id!r}", other.parts, shown.parts)
            _same(f"figures of case {case.id!r}", dict(other.blobs), dict(shown.blobs))


def check_evidence_fits_modalities(subject: SettingUnderTest) -> None:
    """Tables and figures are shown only where they were asked for, and every figure comes with its bytes."""
    setting = subject.open(subject.case_file)
    for case in _some(setting):
        for modalities, unwanted in ((("table",), Figure), (("figure",), Table)):
            shown = setting.evidence(case, modalities)
            if any(isinstance(part, unwanted) for part in shown.parts):
                raise ContractError(
                    f"case {case.id!r}: a {unwanted.__name__.lower()} is shown with modalities {modalities}"
                )
            figures = {part.sha256 for part in shown.parts if isinstance(part, Figure)}
            _same(f"figures of case {case.id!r}", {sha256_of(b) for b in shown.blobs.values()}, figures)


def check_evidence_tells_something(subject: SettingUnderTest) -> None:
    """Every case shows some evidence before the first measurement."""
    setting = subject.open(subject.case_file)
    for case in setting.cases():
        if not setting.evidence(case, ("table",)).parts:
            raise ContractError(f"case {case.id!r} shows nothing")


def check_evidence_does_not_quote_truth(subject: SettingUnderTest) -> None:
    """No true value stands in the evidence, to four decimals."""
    setting = subject.open(subject.case_file)
    for case in setting.cases():
        shown = " ".join(_words(setting.evidence(case, ("table",)).parts))
        for truth in setting.truth(case):
            if truth.value is not None and abs(truth.value) > 0.001 and f"{truth.value:.4f}" in shown:
                raise ContractError(f"case {case.id!r} shows the true value of {truth.readout!r}, {truth.value:.4f}")


def check_observe_is_pure(subject: SettingUnderTest) -> None:
    """A measurement gives the same observation whatever was measured before it."""
    forward, backward = subject.open(subject.case_file), subject.open(subject.case_file)
    for case in _some(forward):
        ahead = {m.id: forward.observe(case, m, 7) for m in case.menu}
        for m in reversed(case.menu):
            _same(f"observation {m.id!r} of case {case.id!r}", backward.observe(case, m, 7), ahead[m.id])


def check_observations_are_whole(subject: SettingUnderTest) -> None:
    """An observation names its measurement, and is measured with a value or missing with a reason."""
    setting = subject.open(subject.case_file)
    for case in setting.cases():
        for m in case.menu:
            check_observation(case, m.id, setting.observe(case, m, 7).observation)


def check_truth_is_whole(subject: SettingUnderTest) -> None:
    """Truth answers every readout, in order, with the label that its value has."""
    setting = subject.open(subject.case_file)
    for case in setting.cases():
        check_truth(case.readouts, setting.truth(case))


def check_responses_share_no_target(subject: SettingUnderTest) -> None:
    """Training responses come from perturbations that share no target with the case."""
    setting = subject.open(subject.case_file)
    for case in setting.cases():
        for response in setting.responses(case):
            shared = set(response.perturbation.targets) & set(case.perturbation.targets)
            if shared or response.perturbation.id == case.perturbation.id:
                raise ContractError(
                    f"case {case.id!r} learns from {response.perturbation.id!r}, which shares {sorted(shared)}"
                )


def check_baselines_are_whole(subject: SettingUnderTest) -> None:
    """Every naive baseline predicts every readout, in order."""
    setting = subject.open(subject.case_file)
    for case in setting.cases():
        for name, predictions in setting.baselines(case).items():
            check_predictions(f"baseline {name!r} of case {case.id!r}", [r.id for r in case.readouts], predictions)


def check_values_survive_json(subject: SettingUnderTest) -> None:
    """Truth and observations go through JSON and come back the same."""
    setting = subject.open(subject.case_file)
    for case in _some(setting):
        values = [*setting.truth(case), *(setting.observe(case, m, 7).observation for m in case.menu)]
        for value in values:
            _same("value after JSON", type(value).model_validate_json(canonical_json(value)), value)


SETTING_CHECKS: tuple[Callable[[SettingUnderTest], None], ...] = (
    check_cases_are_the_files,
    check_other_data_is_refused,
    check_evidence_tells_something,
    check_evidence_is_pure,
    check_evidence_fits_modalities,
    check_evidence_does_not_quote_truth,
    check_observe_is_pure,
    check_observations_are_whole,
    check_truth_is_whole,
    check_responses_share_no_target,
    check_baselines_are_whole,
    check_values_survive_json,
)


def _some(setting: EvidenceSetting) -> tuple[Case, ...]:
    return setting.cases()[:CASES_LOOKED_AT]


def _words(parts: Iterable[object]) -> Iterable[str]:
    for part in parts:
        if isinstance(part, Text):
            yield part.text
        elif isinstance(part, Table):
            yield from (f"{cell:.4f}" if isinstance(cell, float) else str(cell) for row in part.rows for cell in row)
