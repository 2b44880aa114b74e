"""The contract checks of simulators, adapters, interpreters and selection policies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from evidence.checks import check_predictions
from evidence.contracts import (
    Adapter,
    AdapterInputs,
    Case,
    Interpreter,
    Joint,
    Measurement,
    Observation,
    Prediction,
    Readout,
    Refit,
    Reply,
    Request,
    SelectionPolicy,
    SelectionView,
    Simulator,
    TrainingResidual,
)
from evidence.errors import ContractError
from evidence.values import canonical_json


class SimulatorUnderTest(NamedTuple):
    """A way to make the simulator, training data it accepts, and cases to predict."""

    make: Callable[[], Simulator]
    training: Any
    cases: tuple[Case, ...]


class InterpreterUnderTest(NamedTuple):
    """A way to make the interpreter, a request it can answer, and the figures of that request."""

    make: Callable[[], Interpreter]
    request: Request
    blobs: dict[str, bytes]


# --- simulators --------------------------------------------------------------------------------------------------


def check_predicts_every_readout(subject: SimulatorUnderTest) -> None:
    """It predicts every readout of every case, in the order asked, with finite mean and standard deviation."""
    simulator = _fitted(subject)
    for case in subject.cases:
        ids = [r.id for r in case.readouts]
        check_predictions("prediction", ids, simulator.predict(case.perturbation, ids))
        check_predictions("prediction", ids[::-1], simulator.predict(case.perturbation, ids[::-1]))


def check_predictions_do_not_depend_on_order(subject: SimulatorUnderTest) -> None:
    """A prediction is the same whatever else was predicted before it, and after fitting again with the same seed."""
    first, second = _fitted(subject), _fitted(subject)
    ahead = [_predict(first, case) for case in subject.cases]
    behind = [_predict(second, case) for case in reversed(subject.cases)][::-1]
    if ahead != behind:
        raise ContractError("predictions changed with the order of the cases or between two fits with one seed")


def check_leaves_global_random_state(subject: SimulatorUnderTest) -> None:
    """Fitting and predicting leave the random state of random and numpy as it was."""
    before = (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[index]
    _predict(_fitted(subject), subject.cases[0])
    if before != (random.getstate(), np.random.get_state()[1].tolist()):  # type: ignore[index]
        raise ContractError("the global random state changed: seeds are arguments, not global")


def _fitted(subject: SimulatorUnderTest) -> Simulator:
    simulator = subject.make()
    simulator.fit(subject.training, seed=3)
    return simulator


def _predict(simulator: Simulator, case: Case) -> tuple[Prediction, ...]:
    return simulator.predict(case.perturbation, [r.id for r in case.readouts])


SIMULATOR_CHECKS = (
    check_predicts_every_readout,
    check_predictions_do_not_depend_on_order,
    check_leaves_global_random_state,
)

# --- adapters ----------------------------------------------------------------------------------------------------


def check_calibrates_every_readout(subject: Adapter) -> None:
    """It returns one finite prediction for every readout, in order, with and without observations."""
    for observations in ([], [_observation("b", 0.4)], [_observation("b", 0.4), _observation("c", -0.1)]):
        check_predictions("calibrated", _inputs().readouts, subject.calibrate(_inputs(), observations))


def check_calibration_is_pure(subject: Adapter) -> None:
    """The same inputs and observations give the same result, whatever was calibrated before."""
    first = subject.calibrate(_inputs(), [_observation("b", 0.4)])
    subject.calibrate(_inputs(), [_observation("c", -0.9)])
    if subject.calibrate(_inputs(), [_observation("b", 0.4)]) != first:
        raise ContractError("the second result differs from the first")


def check_order_of_observations_does_not_matter(subject: Adapter) -> None:
    """Observations may come in any order."""
    seen = [_observation("b", 0.4), _observation("c", -0.1)]
    one, other = subject.calibrate(_inputs(), seen), subject.calibrate(_inputs(), seen[::-1])
    if not all(np.allclose([p.mean, p.sd], [q.mean, q.sd], atol=1e-9) for p, q in zip(one, other, strict=True)):
        raise ContractError("the result changed with the order of the observations")


def check_joint_agrees_with_calibrate(subject: Adapter) -> None:
    """An adapter with a joint posterior gives the means and standard deviations of `calibrate` in it."""
    joint = getattr(subject, "joint", None)
    if joint is None:
        return
    for seen in ([], [_observation("b", 0.4)]):
        made, both = subject.calibrate(_inputs(), seen), joint(_inputs(), seen)
        sd = np.sqrt(np.diag(np.array(both.cov)))
        if not np.allclose([[p.mean, p.sd] for p in made], np.column_stack([both.mean, sd]), atol=1e-9):
            raise ContractError("joint and calibrate differ in mean or standard deviation")


def check_missing_observation_changes_nothing(subject: Adapter) -> None:
    """A measurement that could not be made changes no prediction."""
    missing = Observation(measurement="b", readout="b", status="missing", reason="no cells")
    if subject.calibrate(_inputs(), [missing]) != subject.calibrate(_inputs(), []):
        raise ContractError("a missing observation moved a prediction")


def _inputs() -> AdapterInputs:
    """Four readouts, twelve training perturbations with a common slope, a shift of their own and noise, and refits."""
    rng = np.random.default_rng(0)
    readouts = ("a", "b", "c", "d")
    predictions = tuple(
        Prediction(readout=r, mean=float(m), sd=0.05) for r, m in zip(readouts, rng.normal(size=4), strict=True)
    )
    training = []
    for number in range(12):
        shift = rng.normal(scale=0.2)
        for readout in readouts:
            predicted = float(rng.normal())
            value = float(0.5 * predicted + shift + rng.normal(scale=0.1))
            training.append(
                TrainingResidual(
                    perturbation=f"p{number}",
                    targets=(f"t{number}",),
                    readout=readout,
                    predicted=predicted,
                    sd=0.05,
                    value=value,
                    se=0.05,
                )
            )
    refits = tuple(
        Refit(measurements=made, predictions=tuple(p.model_copy(update={"mean": p.mean + 0.1}) for p in predictions))
        for made in (("b",), ("c",), ("b", "c"))
    )
    return AdapterInputs(readouts=readouts, predictions=predictions, training=tuple(training), refits=refits)


def _observation(readout: str, value: float) -> Observation:
    return Observation(measurement=readout, readout=readout, value=value, se=0.05)


ADAPTER_CHECKS = (
    check_calibrates_every_readout,
    check_calibration_is_pure,
    check_order_of_observations_does_not_matter,
    check_joint_agrees_with_calibrate,
    check_missing_observation_changes_nothing,
)

# --- selection policies ------------------------------------------------------------------------------------------


def check_selects_from_the_open_menu(subject: SelectionPolicy) -> None:
    """It chooses an entry of the open menu, or none."""
    for proposal in ("m2", None):
        chosen = subject.select(_view(proposal), seed=5)
        if chosen is not None and chosen not in {"m1", "m2", "m3"}:
            raise ContractError(f"it chose {chosen!r}, which is not on the open menu")


def check_selection_is_pure(subject: SelectionPolicy) -> None:
    """The same view and seed give the same choice, in whatever order the menu is listed."""
    view = _view("m2")
    turned = view.model_copy(update={"open_menu": view.open_menu[::-1]})
    choices = {subject.select(v, seed=5) for v in (view, turned, view)}
    if len(choices) > 1:
        raise ContractError(f"it chose {sorted(map(str, choices))} for one view and seed")


def check_empty_menu_selects_nothing(subject: SelectionPolicy) -> None:
    """An empty menu gives no choice."""
    empty = SelectionView(case="case", open_menu=())
    if subject.select(empty, seed=5) is not None:
        raise ContractError("it chose something from an empty menu")


def _view(proposal: str | None) -> SelectionView:
    menu = tuple(Measurement(id=f"m{n}", name=f"measure {n}", readout=f"r{n}") for n in (1, 2, 3))
    predictions = tuple(Prediction(readout=f"r{n}", mean=0.0, sd=0.1 * n) for n in (1, 2, 3))
    joint = Joint(
        readouts=("r1", "r2", "r3"),
        mean=(0.0, 0.1, -0.2),
        cov=((0.01, 0.005, 0.0), (0.005, 0.04, 0.01), (0.0, 0.01, 0.09)),
    )
    return SelectionView(
        case="case",
        open_menu=menu,
        predictions=predictions,
        proposal=proposal,
        readouts=tuple(Readout(id=r, name=r, threshold=0.1) for r in joint.readouts),
        joint=joint,
        noise={"r1": 0.05, "r2": 0.05},
    )


POLICY_CHECKS = (
    check_selects_from_the_open_menu,
    check_selection_is_pure,
    check_empty_menu_selects_nothing,
)

# --- interpreters ------------------------------------------------------------------------------------------------


def check_identity_is_plain_and_stable(subject: InterpreterUnderTest) -> None:
    """Its identity is JSON-able and does not change when it is asked something."""
    interpreter = subject.make()
    before = canonical_json(interpreter.identity())
    _ask(interpreter, subject)
    if canonical_json(interpreter.identity()) != before:
        raise ContractError("the identity changed after a request")


def check_reply_is_a_reply(subject: InterpreterUnderTest) -> None:
    """It answers with a Reply that survives JSON."""
    reply = _ask(subject.make(), subject)
    if not isinstance(reply, Reply) or Reply.model_validate_json(canonical_json(reply)) != reply:
        raise ContractError(f"expected a Reply, got {type(reply).__name__}")


def _ask(interpreter: Interpreter, subject: InterpreterUnderTest) -> Reply:
    async def talk() -> Reply:
        try:
            return await interpreter.ask(subject.request, subject.blobs, repeat=0)
        finally:
            close = getattr(interpreter, "aclose", None)  # open connections end with the event loop they belong to
            if close is not None:
                await close()

    return asyncio.run(talk())


INTERPRETER_CHECKS = (check_identity_is_plain_and_stable, check_reply_is_a_reply)
