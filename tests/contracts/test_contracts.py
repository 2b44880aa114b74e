"""Every registered component passes the contract checks of its kind."""

from pathlib import Path

import pytest
from vcloop_heat_shock.setting import HeatShock
from vcloop_heat_shock.simulator import MeanResponse

from evidence.checks import SETTING_CHECKS, SettingUnderTest
from evidence.component_checks import (
    ADAPTER_CHECKS,
    INTERPRETER_CHECKS,
    POLICY_CHECKS,
    SIMULATOR_CHECKS,
    InterpreterUnderTest,
    SimulatorUnderTest,
)
from evidence.contracts import CaseFile, Message, Readout, Reply, Request, Table
from evidence.errors import ContractError
from evidence.registry import ADAPTERS, INTERPRETERS, POLICIES, SETTINGS, SIMULATORS
from evidence.strict_yaml import read_value
from interpreters.fake_server import FakeServer, chat
from interpreters.openai_client import OpenAIInterpreter
from interpreters.pixels import PixelsInterpreter
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


def settings(request: pytest.FixtureRequest) -> dict[str, SettingUnderTest]:
    heat = HeatShock.freeze(data=None, shape="all", seed=1, options={})
    made = {"heat_shock": SettingUnderTest(heat, lambda file: HeatShock.open(file, None))}
    path = request.getfixturevalue("sachs_cells") if request.node.callspec.params["name"] == "signaling" else None
    if path is not None:
        signaling = read_value(CASES / "signaling.json", CaseFile, what="case file")
        kind = SETTINGS.get("signaling")
        made["signaling"] = SettingUnderTest(signaling, lambda file: kind.open(file, path))
    if request.node.callspec.params["name"] == "microscopy":
        microscopy = read_value(CASES / "microscopy.json", CaseFile, what="case file")
        pictures = SETTINGS.get("microscopy")
        made["microscopy"] = SettingUnderTest(microscopy, lambda file: pictures.open(file, None))
    return made


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
    judge(name, check, settings(request)[name])


@pytest.mark.parametrize("check", SIMULATOR_CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", SIMULATORS.names())
def test_simulators(name, check, request):
    if name == "mean_response":
        heat = HeatShock.open(HeatShock.freeze(data=None, shape="all", seed=1, options={}), None)
        subject = SimulatorUnderTest(lambda: MeanResponse(MeanResponse.Options()), heat.training(), heat.cases())
    else:
        path = request.getfixturevalue("sachs_cells")
        case_file = read_value(CASES / "signaling.json", CaseFile, what="case file")
        setting = SETTINGS.get("signaling").open(case_file, path)
        make = {"bayes_net": lambda: build(SIMULATORS, Component(name="bayes_net"), "")}[name]
        subject = SimulatorUnderTest(make, setting.training(), setting.cases())
    judge(name, check, subject)


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
            "pixels": lambda: PixelsInterpreter(PixelsInterpreter.Options()),
            "scripted": lambda: ScriptedInterpreter(replies=["{}", Reply(status="refused")]),
            "openai": lambda: OpenAIInterpreter(options),
            "replay": lambda: ReplayInterpreter(ReplayOptions(run=str(REFERENCE))),
        }
        requests = {"replay": replayed_request, "pixels": lambda: PICTURE_REQUEST}
        request = requests.get(name, lambda: REQUEST)()
        judge(name, check, InterpreterUnderTest(makers[name], request, {}))


def replayed_request() -> Request:
    from loops.archive import read_calls

    plain = {key: value for key, value in read_calls(REFERENCE)[0].request.items() if key != "identity"}
    return Request.model_validate_json(__import__("json").dumps(plain))
