"""Every registered component passes the contract checks of its kind."""

import json
from pathlib import Path

import pytest
from vcloop_heat_shock.setting import HeatShock

from evidence.checks import SETTING_CHECKS, SettingUnderTest
from evidence.component_checks import (
    ADAPTER_CHECKS,
    INTERPRETER_CHECKS,
    POLICY_CHECKS,
    SIMULATOR_CHECKS,
    InterpreterUnderTest,
    SimulatorUnderTest,
)
from evidence.contracts import CaseFile, Message, NoOptions, Readout, Reply, Request, Table
from evidence.errors import ContractError
from evidence.registry import ADAPTERS, INTERPRETERS, POLICIES, SETTINGS, SIMULATORS
from evidence.strict_yaml import read_value
from interpreters.fake_server import FakeServer, chat
from interpreters.openai_client import OpenAIInterpreter
from interpreters.pixels import PixelsInterpreter
from interpreters.replay import ReplayInterpreter, ReplayOptions
from interpreters.rule_judge import RuleJudge
from interpreters.rules import RulesInterpreter
from interpreters.scripted import ScriptedInterpreter
from loops.config import Component, build

CASES = Path(__file__).resolve().parents[2] / "cases"
REFERENCE = Path(__file__).resolve().parents[2] / "results" / "signaling-reference"
EXPECTED_FAILURES: dict[tuple[str, str], str] = {}
"""(component, check) -> why, and until when. Strict: an entry that passes fails the test."""

REQUEST = Request(
    step="predict",
    messages=(
        Message(role="user", parts=(Table(name="predictions", columns=("r", "m", "s"), rows=(("a", 0.2, 0.1),)),)),
    ),
    readouts=(Readout(id="a", name="a", threshold=0.1),),
)

PICTURE_REQUEST = Request(
    step="predict",
    messages=(
        Message(
            role="user",
            parts=(
                Table(
                    name="reference features",
                    columns=("reference", "class", "compound", "cells", "f"),
                    rows=tuple((f"R{n}", "ab"[n % 2], f"c{n % 4}", 2, float(n % 2) + 0.01 * n) for n in range(12)),
                ),
                Table(name="query features", columns=("field", "cells", "f"), rows=(("query", 2, 0.9),)),
            ),
        ),
    ),
    readouts=(Readout(id="mechanism", name="mechanism", labels=("a", "b")),),
)


def shipped(setting: str, file: str, data: Path | None) -> SettingUnderTest:
    """A setting on a shipped case file."""
    case_file = read_value(CASES / file, CaseFile, what="case file")
    kind = SETTINGS.get(setting)
    return SettingUnderTest(case_file, lambda file: kind.open(file, data))


def made_up_synergy(folder: Path) -> SettingUnderTest:
    """The synergy setting on small made-up tables: the real ones are not in the repository."""
    kind = SETTINGS.get("drug_synergy")
    case_file = kind.freeze(data=folder, shape="published", seed=1, options={})
    return SettingUnderTest(case_file, lambda file: kind.open(file, folder))


def setting_under_test(name: str, request: pytest.FixtureRequest) -> SettingUnderTest:
    match name:
        case "heat_shock":
            heat = HeatShock.freeze(data=None, shape="all", seed=1, options={})
            return SettingUnderTest(heat, lambda file: HeatShock.open(file, None))
        case "signaling":
            return shipped(name, "signaling.json", request.getfixturevalue("sachs_cells"))
        case "gene_pair":
            return shipped(name, "gene-pair-twin.json", None)
        case "drug_combination":
            return shipped(name, "drug-combination.json", None)
        case "drug_synergy":
            return made_up_synergy(request.getfixturevalue("synergy_tables")())
        case "microscopy":
            return shipped(name, "microscopy.json", None)
    raise AssertionError(f"no cheap instance of setting {name!r}: add one here")


SIMULATOR_INSTANCES: dict[str, tuple[str, dict[str, object]]] = {
    "bayes_net": ("signaling", {}),
    "cpa": ("drug_combination", {"table": str(CASES / "drug-combination-cpa.npz")}),
    "gears": ("gene_pair", {"table": str(CASES / "gene-pair-twin-gears.npz")}),
    "mean_response": ("heat_shock", {}),
    "pair_ridge": ("drug_synergy", {}),
}
"""Simulator -> the setting it is checked on, and its options. A registered name without an entry fails the test."""


def judge(name: str, check, subject) -> None:
    reason = EXPECTED_FAILURES.get((name, check.__name__))
    if reason is None:
        check(subject)
        return
    with pytest.raises(ContractError):
        check(subject)


@pytest.mark.parametrize("check", SETTING_CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", SETTINGS.names())
def test_settings(name, check, request):
    judge(name, check, setting_under_test(name, request))


@pytest.mark.parametrize("check", SIMULATOR_CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", SIMULATORS.names())
def test_simulators(name, check, request):
    from_setting, options = SIMULATOR_INSTANCES[name]
    under_test = setting_under_test(from_setting, request)
    setting = under_test.open(under_test.case_file)
    component = Component(name=name, options=options)
    subject = SimulatorUnderTest(lambda: build(SIMULATORS, component, name), setting.training(), setting.cases()[:3])
    judge(name, check, subject)


@pytest.mark.parametrize("check", ADAPTER_CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", ADAPTERS.names())
def test_adapters(name, check):
    judge(name, check, build(ADAPTERS, Component(name=name), name))


@pytest.mark.parametrize("check", POLICY_CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", POLICIES.names())
def test_policies(name, check):
    options = {"fixed": {"order": ["m3", "m1"]}}.get(name, {})
    judge(name, check, build(POLICIES, Component(name=name, options=options), name))


@pytest.mark.loopback
@pytest.mark.allow_hosts(["127.0.0.1"])
@pytest.mark.parametrize("check", INTERPRETER_CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", INTERPRETERS.names())
def test_interpreters(name, check, socket_enabled):
    with FakeServer(lambda request: chat("{}")) as server:
        options = OpenAIInterpreter.Options(model="m", base_url=server.base_url)
        makers = {
            "rules": lambda: RulesInterpreter(RulesInterpreter.Options()),
            "pixels": lambda: PixelsInterpreter(PixelsInterpreter.Options()),
            "rule_judge": lambda: RuleJudge(NoOptions()),
            "scripted": lambda: ScriptedInterpreter(replies=["{}", Reply(status="refused")]),
            "openai": lambda: OpenAIInterpreter(options),
            "replay": lambda: ReplayInterpreter(ReplayOptions(run=REFERENCE)),
        }
        requests = {"replay": replayed_request, "pixels": lambda: PICTURE_REQUEST}
        request = requests.get(name, lambda: REQUEST)()
        judge(name, check, InterpreterUnderTest(makers[name], request, {}))


def replayed_request() -> Request:
    from loops.archive import read_calls

    plain = {key: value for key, value in read_calls(REFERENCE).records[0].request.items() if key != "identity"}
    return Request.model_validate_json(json.dumps(plain))
