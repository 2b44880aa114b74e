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
from evidence.errors import ConfigError, did_you_mean
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
    return SettingUnderTest(frozen, lambda file: kind.open(file, data))


def _shipped_case_file(setting: str, shipped: Path) -> Path:
    for path in sorted(shipped.glob("*.json")):
        if read_value(path, CaseFile, what="case file").setting == setting:
            return path
    raise ConfigError(f"no shipped case file for setting {setting!r}: name one with --cases")


def _simulator(name: str, data: Path | None, shipped: Path) -> SimulatorUnderTest:
    accepts = SIMULATORS.get(name).accepts
    for path in sorted(shipped.glob("*.json")):
        frozen = read_value(path, CaseFile, what="case file")
        setting = SETTINGS.get(frozen.setting).open(frozen, data)
        training = setting.training()
        if training is not None and training.kind == accepts:
            return SimulatorUnderTest(
                lambda: build(SIMULATORS, Component(name=name), name), training, setting.cases()[:3]
            )
    raise ConfigError(f"no shipped case file offers training data of the kind {accepts!r}, which {name!r} learns from")


def _interpreter(name: str, data: Path | None, shipped: Path) -> InterpreterUnderTest:
    offline = ("rules",)
    if name not in offline:
        raise ConfigError(
            f"interpreter {name!r} needs options or a server; offline checks exist for: {', '.join(offline)}"
        )
    setting = _setting("signaling", _shipped_case_file("signaling", shipped), data)
    opened = setting.open(setting.case_file)
    case = opened.cases()[0]
    simulator = build(SIMULATORS, Component(name="bayes_net"), name)
    simulator.fit(opened.training(), seed=0)
    predictions = simulator.predict(case.perturbation, [r.id for r in case.readouts])
    shown = prediction_exhibit(case, predictions, ("table",))
    request = predict_request(case, (*opened.evidence(case, ("table",)).parts, *shown.parts))
    return InterpreterUnderTest(lambda: build(INTERPRETERS, Component(name=name), name), request, {})
