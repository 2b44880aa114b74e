"""`vcloop check`: find a component by name, make a cheap instance, and run the contract checks of its kind."""

from __future__ import annotations

from pathlib import Path

from evidence.checks import SETTING_CHECKS, CheckResult, SettingUnderTest, run_checks
from evidence.component_checks import (
    ADAPTER_CHECKS,
    INTERPRETER_CHECKS,
    POLICY_CHECKS,
    SIMULATOR_CHECKS,
    InterpreterUnderTest,
    SimulatorUnderTest,
)
from evidence.contracts import CaseFile
from evidence.errors import ConfigError, DataError, did_you_mean
from evidence.registry import ADAPTERS, INTERPRETERS, POLICIES, REGISTRIES, SETTINGS, SIMULATORS, Registry
from evidence.strict_yaml import read_value
from interpreters.prompts import predict_request
from loops.config import Component, build
from loops.exhibits import prediction_exhibit


def check_component(name: str, *, case_file: Path | None, data: Path | None, shipped: Path) -> list[CheckResult]:
    """Run the checks of the component with this name. Raises ConfigError where no cheap instance of it can be made."""
    registry = _registry_of(name)
    if registry is SETTINGS:
        return run_checks(SETTING_CHECKS, _setting(name, case_file or _shipped_case_file(name, shipped), data))
    component = Component(name=name)
    if registry is ADAPTERS:
        return run_checks(ADAPTER_CHECKS, build(registry, component, name))
    if registry is POLICIES:
        return run_checks(POLICY_CHECKS, build(registry, component, name))
    if registry is SIMULATORS:
        return run_checks(SIMULATOR_CHECKS, _simulator(name, data, shipped))
    return run_checks(INTERPRETER_CHECKS, _interpreter(name, data, shipped))


def _registry_of(name: str) -> Registry:
    for registry in REGISTRIES:
        if name in registry.names():
            return registry
    known = [n for registry in REGISTRIES for n in registry.names()]
    raise ConfigError(f"no component named {name!r}.{did_you_mean(name, known)}")


def _setting(name: str, case_file: Path, data: Path | None) -> SettingUnderTest:
    frozen = read_value(case_file, CaseFile, what="case file")
    if frozen.setting != name:
        raise ConfigError(f"case file {case_file} belongs to setting {frozen.setting!r}, not {name!r}")
    kind = SETTINGS.get(name)
    kind.open(frozen, data)
    return SettingUnderTest(frozen, lambda file: kind.open(file, data))


def _shipped_case_file(setting: str, shipped: Path) -> Path:
    """The shipped case file called after the setting, else the first one of that setting."""
    for path in sorted(shipped.glob("*.json"), key=lambda p: (p.stem != setting, p.name)):
        if read_value(path, CaseFile, what="case file").setting == setting:
            return path
    raise ConfigError(f"no shipped case file for setting {setting!r}: name one with --cases")


def _simulator(name: str, data: Path | None, shipped: Path) -> SimulatorUnderTest:
    """The simulator with the training data of the first setting that has some for it, and its data on this machine."""
    accepts = SIMULATORS.get(name).accepts
    absent = ""
    for setting_name in sorted({read_value(p, CaseFile, what="case file").setting for p in shipped.glob("*.json")}):
        try:
            subject = _setting(setting_name, _shipped_case_file(setting_name, shipped), data)
        except DataError as error:
            absent = f" ({error})"
            continue
        setting = subject.open(subject.case_file)
        training = setting.training()
        if training is not None and training.kind == accepts:
            cases = setting.cases()[:3]
            return SimulatorUnderTest(lambda: build(SIMULATORS, Component(name=name), name), training, cases)
    raise ConfigError(f"no shipped case file offers training data of the kind {accepts!r} for {name!r}{absent}")


def _interpreter(name: str, data: Path | None, shipped: Path) -> InterpreterUnderTest:
    """An offline interpreter with a request it can read. Raises ConfigError for one that needs a server."""
    if name == "pixels":
        frozen = _setting("microscopy", _shipped_case_file("microscopy", shipped), data)
        pictured = frozen.open(frozen.case_file)
        first = pictured.cases()[0]
        shown = predict_request(first, pictured.evidence(first, ("table",)).parts)
        return InterpreterUnderTest(lambda: build(INTERPRETERS, Component(name=name), name), shown, {})
    if name != "rules":
        raise ConfigError(f"interpreter {name!r} needs options or a server; it is checked in vcloop's tests, not here")
    subject = _simulator("bayes_net", data, shipped)
    case = subject.cases[0]
    simulator = subject.make()
    simulator.fit(subject.training, seed=0)
    predictions = simulator.predict(case.perturbation, [r.id for r in case.readouts])
    request = predict_request(case, prediction_exhibit(case, predictions, ("table",)).parts)
    return InterpreterUnderTest(lambda: build(INTERPRETERS, Component(name=name), name), request, {})
