"""Every registered component passes the contract checks of its kind."""

from pathlib import Path

import pytest
from vcloop_heat_shock.setting import HeatShock
from vcloop_heat_shock.simulator import MeanResponse

from evidence.checks import SETTING_CHECKS, SettingUnderTest
from evidence.combination_cases import freeze
from evidence.component_checks import (
    ADAPTER_CHECKS,
    INTERPRETER_CHECKS,
    POLICY_CHECKS,
    SIMULATOR_CHECKS,
    InterpreterUnderTest,
    SimulatorUnderTest,
)
from evidence.contracts import CaseFile, Message, Readout, Reply, Request, Table
from evidence.errors import ConfigError, ContractError
from evidence.registry import ADAPTERS, INTERPRETERS, POLICIES, SETTINGS, SIMULATORS
from evidence.strict_yaml import read_value
from interpreters.fake_server import FakeServer, chat
from interpreters.openai_client import OpenAIInterpreter
from interpreters.replay import ReplayInterpreter, ReplayOptions
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


def setting_under_test(name: str, request: pytest.FixtureRequest) -> SettingUnderTest:
    """A cheap instance of every registered setting; a name without one fails with a KeyError."""
    if name == "heat_shock":
        heat = HeatShock.freeze(data=None, shape="all", seed=1, options={})
        return SettingUnderTest(heat, lambda file: HeatShock.open(file, None))
    if name == "small combinations":
        opened = request.getfixturevalue("combinations")()
        kind = SETTINGS.get("drug_combination")
        return SettingUnderTest(freeze(opened, "published", 1), lambda file: kind.on_cells(file, opened))
    kind = SETTINGS.get(name)
    if name == "drug_synergy":
        path = request.getfixturevalue("made_up_synergy")
        case_file = kind.freeze(data=path, shape="published", seed=1, options={})
        return SettingUnderTest(case_file, lambda file: kind.open(file, path))
    shipped = {"signaling": "signaling.json", "drug_combination": "drug-combination.json"}[name]
    path = request.getfixturevalue("sachs_cells") if name == "signaling" else None
    return SettingUnderTest(read_value(CASES / shipped, CaseFile, what="case file"), lambda file: kind.open(file, path))


SIMULATOR_INSTANCES = {
    "bayes_net": ("signaling", {}),
    "cpa": ("small combinations", {"members": 2, "epochs": 1, "n_hidden": 8, "n_latent": 4}),
    "pair_ridge": ("drug_synergy", {}),
    "response_table": ("drug_combination", {"table": "drug-combination-cpa.npz"}),
}
"""Simulator -> a setting that offers training data for it, and options that keep it cheap."""


def simulator_under_test(name: str, request: pytest.FixtureRequest) -> SimulatorUnderTest:
    """A cheap instance of every registered simulator; a name without one fails with a KeyError."""
    if name == "mean_response":
        heat = HeatShock.open(HeatShock.freeze(data=None, shape="all", seed=1, options={}), None)
        return SimulatorUnderTest(lambda: MeanResponse(MeanResponse.Options()), heat.training(), heat.cases())
    setting_name, options = SIMULATOR_INSTANCES[name]
    if name == "cpa":
        needs_cpa()
    subject = setting_under_test(setting_name, request)
    setting = subject.open(subject.case_file)
    component = Component(name=name, options=options)
    return SimulatorUnderTest(lambda: build(SIMULATORS, component, ""), setting.training(), setting.cases())


def needs_cpa() -> None:
    pytest.importorskip("torch", reason="needs CPA: make cpa")
    from simulators.cpa import compat

    try:
        compat.require()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def made_up_synergy(synergy_tables):
    return synergy_tables()


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
    judge(name, check, simulator_under_test(name, request))


@pytest.mark.parametrize("check", ADAPTER_CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", ADAPTERS.names())
def test_adapters(name, check):
    judge(name, check, build(ADAPTERS, Component(name=name), name))


@pytest.mark.parametrize("check", POLICY_CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", POLICIES.names())
def test_policies(name, check):
    judge(name, check, build(POLICIES, Component(name=name), name))


@pytest.mark.loopback
@pytest.mark.allow_hosts(["127.0.0.1"])
@pytest.mark.parametrize("check", INTERPRETER_CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", INTERPRETERS.names())
def test_interpreters(name, check, socket_enabled):
    with FakeServer(lambda request: chat("{}")) as server:
        options = OpenAIInterpreter.Options(model="m", base_url=server.base_url)
        makers = {
            "rules": lambda: RulesInterpreter(RulesInterpreter.Options()),
            "scripted": lambda: ScriptedInterpreter(replies=["{}", Reply(status="refused")]),
            "openai": lambda: OpenAIInterpreter(options),
            "replay": lambda: ReplayInterpreter(ReplayOptions(run=str(REFERENCE))),
        }
        request = replayed_request() if name == "replay" else REQUEST
        judge(name, check, InterpreterUnderTest(makers[name], request, {}))


def replayed_request() -> Request:
    from loops.archive import read_calls

    plain = {key: value for key, value in read_calls(REFERENCE)[0].request.items() if key != "identity"}
    return Request.model_validate_json(__import__("json").dumps(plain))
