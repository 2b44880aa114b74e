"""`vcloop check`: find a component by name, make a cheap instance, and run the contract checks of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def check_component(
    name: str, *, case_file: Path | None, data: Path | None, shipped: Path, options: Mapping[str, Any]
) -> list[CheckResult]:
    """Run the checks of the component with this name. Raises ConfigError where no cheap instance of it can be made."""
    registry = _registry_of(name)
    if registry is SETTINGS:
        return run_checks(SETTING_CHECKS, _setting(name, case_file or _shipped_case_file(name, shipped), data))
    component = Component(name=name, options=dict(options))
    if registry is ADAPTERS:
        return run_checks(ADAPTER_CHECKS, build(registry, component, name))
    if registry is POLICIES:
        return run_checks(POLICY_CHECKS, build(registry, component, name))
    if registry is SIMULATORS:
        return run_checks(SIMULATOR_CHECKS, _simulator(component, case_file, data, shipped))
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
    """The shipped case file called after the setting, else a generated twin's (it needs no data), else the first."""
    files = {path: read_value(path, CaseFile, what="case file") for path in sorted(shipped.glob("*.json"))}
    own = [path for path, file in files.items() if file.setting == setting]
    if not own:
        raise ConfigError(f"no shipped case file for setting {setting!r}: name one with --cases")
    return min(own, key=lambda path: (path.stem != setting, not files[path].synthetic, path.name))


def _simulator(component: Component, case_file: Path | None, data: Path | None, shipped: Path) -> SimulatorUnderTest:
    """The simulator on the case file given, else on the first shipped one with training data for it that is here."""
    name, accepts = component.name, build(SIMULATORS, component, f"{component.name} (--option)").accepts
    absent = ""
    settings = sorted({read_value(p, CaseFile, what="case file").setting for p in shipped.glob("*.json")})
    for path in [case_file] if case_file else [_shipped_case_file(setting, shipped) for setting in settings]:
        try:
            subject = _setting(read_value(path, CaseFile, what="case file").setting, path, data)
        except DataError as error:
            absent = f" ({error})"
            continue
        setting = subject.open(subject.case_file)
        training = setting.training()
        if training is not None and training.kind == accepts:
            return SimulatorUnderTest(lambda: build(SIMULATORS, component, name), training, setting.cases()[:3])
    raise ConfigError(f"no case file offers training data of the kind {accepts!r} for {name!r}{absent}")


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
    subject = _simulator(Component(name="bayes_net"), None, data, shipped)
    case = subject.cases[0]
    simulator = subject.make()
    simulator.fit(subject.training, seed=0)
    predictions = simulator.predict(case.perturbation, [r.id for r in case.readouts])
    request = predict_request(case, prediction_exhibit(case, predictions, ("table",)).parts)
    return InterpreterUnderTest(lambda: build(INTERPRETERS, Component(name=name), name), request, {})
