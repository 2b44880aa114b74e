"""The contracts: what the parts of vcloop hand to each other, and what each kind of component must do.

Data flows one way: a setting gives cases, evidence, observations and truth; a simulator predicts; an adapter
calibrates the prediction with what was observed; an interpreter replies to requests; a policy chooses from the menu.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, Self, runtime_checkable

from pydantic import Field, model_validator

from evidence.beliefs import class_probabilities
from evidence.values import Name, NonNegative, Positive, Value

NUMERIC_LABELS: tuple[str, str, str] = ("down", "near zero", "up")
"""The three classes of a numeric readout, from its continuous change and its threshold."""


def classes(changes: Sequence[float], limits: Sequence[float]) -> list[str]:
    """The class of each continuous change by a threshold of its own; values exactly at it are near zero."""
    down, near_zero, up = NUMERIC_LABELS
    return [up if x > limit else down if x < -limit else near_zero for x, limit in zip(changes, limits, strict=True)]


class Stated(Protocol):
    """What is stated of a change: the fields of a `Prediction` that decide its class."""

    @property
    def mean(self) -> float: ...  # noqa: D102
    @property
    def sd(self) -> float: ...  # noqa: D102
    @property
    def dof(self) -> float | None: ...  # noqa: D102


class Labelled(Protocol):
    """What is said of a readout: the fields of a `Truth` that are checked."""

    @property
    def readout(self) -> str: ...  # noqa: D102
    @property
    def label(self) -> str: ...  # noqa: D102
    @property
    def value(self) -> float | None: ...  # noqa: D102


class Readout(Value):
    """One output that is asked for and scored.

    Numeric readouts have a `threshold` (in `unit`): the change is "down" below -threshold, "up" above
    +threshold, else "near zero". Categorical readouts have no threshold; `labels` are the options, in the order shown.
    """

    id: Name
    name: Name
    description: str = ""
    labels: tuple[Name, ...] = NUMERIC_LABELS
    threshold: Positive | None = None
    unit: str = ""

    @model_validator(mode="after")
    def _labels_fit(self) -> Self:
        if self.labels == NUMERIC_LABELS:
            return self
        if len(set(self.labels)) != len(self.labels) or len(self.labels) < 2:
            raise ValueError(f"readout {self.id!r}: expected at least two distinct labels, got {list(self.labels)}")
        if self.threshold is not None:
            raise ValueError(f"readout {self.id!r}: a numeric readout has the labels {list(NUMERIC_LABELS)}")
        return self

    @property
    def numeric(self) -> bool:
        """Whether the readout is a continuous change with three classes."""
        return self.threshold is not None

    def classify(self, change: float, threshold: float | None = None) -> str:
        """The class of a continuous change; values exactly at the threshold are near zero."""
        limit = self.threshold if threshold is None else threshold
        if limit is None:
            raise TypeError(f"readout {self.id!r} is categorical: it has no threshold to classify with")
        return classes((change,), (limit,))[0]

    def decide(self, prediction: Stated, threshold: float | None = None) -> str:
        """The class that a prediction stands for.

        The most probable class where the prediction carries the shape of its distribution (`dof`), which maximises the
        expected accuracy; else the class of its mean. Of equally probable classes near zero is taken first.
        """
        limit = self.threshold if threshold is None else threshold
        if prediction.dof is None or limit is None:
            return self.classify(prediction.mean, threshold)
        chances = class_probabilities(prediction.mean, prediction.sd, limit, prediction.dof)
        return NUMERIC_LABELS[max((1, 0, 2), key=lambda number: chances[number])]


class Perturbation(Value):
    """What was done to the cells. `targets` are the genes, drugs or proteins that two cases may share."""

    id: Name
    name: Name
    targets: tuple[Name, ...]
    action: str = ""
    note: str = ""


class Measurement(Value):
    """One entry of a case's menu. `readout` is the readout it measures, None when it shows something else."""

    id: Name
    name: Name
    description: str = ""
    readout: str | None = None
    cost: float = Field(default=1.0, ge=0, le=1e9)


class Case(Value):
    """One hidden biological output: a perturbation, the readouts asked for, the menu of measurements."""

    id: Name
    title: Name
    perturbation: Perturbation
    readouts: tuple[Readout, ...] = Field(min_length=1)
    menu: tuple[Measurement, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        readouts, measurements = [r.id for r in self.readouts], [m.id for m in self.menu]
        for kind, ids in (("readout", readouts), ("measurement", measurements)):
            if len(set(ids)) < len(ids):
                twice = sorted({i for i in ids if ids.count(i) > 1})
                raise ValueError(f"case {self.id!r}: {kind} id repeated: {', '.join(twice)}")
        unknown = [m.id for m in self.menu if m.readout is not None and m.readout not in readouts]
        if unknown:
            raise ValueError(f"case {self.id!r}: measurement {unknown[0]!r} names a readout the case does not have")
        return self

    def readout(self, readout_id: str) -> Readout:
        """The readout with this id. Raises KeyError."""
        return {r.id: r for r in self.readouts}[readout_id]

    def measurement(self, measurement_id: str) -> Measurement:
        """The menu entry with this id. Raises KeyError."""
        return {m.id: m for m in self.menu}[measurement_id]


class NoOptions(Value):
    """The options of a component that has none."""


# --- what a model sees -------------------------------------------------------------------------------------------


class Text(Value):
    """A paragraph."""

    kind: Literal["text"] = "text"
    text: str


class Table(Value):
    """A small table, kept as data so that rules can read it; models get it as Markdown."""

    kind: Literal["table"] = "table"
    name: Name
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.name!r} row {number}: expected {len(self.columns)} cells, got {len(row)}"
                )
        return self


class Figure(Value):
    """A figure by the sha256 of its bytes."""

    kind: Literal["figure"] = "figure"
    name: Name
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    media_type: Literal["image/png", "image/jpeg"] = "image/png"
    caption: str = ""


Part = Annotated[Text | Table | Figure, Field(discriminator="kind")]


class Evidence(NamedTuple):
    """Parts in the order they are shown, and the bytes of their figures by sha256."""

    parts: tuple[Part, ...]
    blobs: Mapping[str, bytes]


# --- what is measured, predicted, true ---------------------------------------------------------------------------


class Observation(Value):
    """What one measurement gave. A measurement that could not be made has status "missing" and no value."""

    measurement: Name
    readout: str | None = None
    status: Literal["measured", "missing"] = "measured"
    value: float | None = None
    se: NonNegative | None = None
    n_cells: int | None = None
    reason: str = ""
    parts: tuple[Part, ...] = ()

    def informs(self, readouts: Collection[str]) -> bool:
        """Whether it has a number for one of these readouts."""
        return self.status == "measured" and self.readout in readouts and self.value is not None


class Observed(NamedTuple):
    """An observation and the bytes of the figures among its parts, by sha256."""

    observation: Observation
    blobs: Mapping[str, bytes]


class Truth(Value):
    """The hidden outcome of one readout: its class, and for a numeric readout the continuous change."""

    readout: Name
    label: Name
    value: float | None = None
    se: NonNegative | None = None


class Prediction(Value):
    """A predicted change of one readout: mean and standard deviation, in the readout's unit.

    `dof`: the change follows a Student t with these degrees of freedom and this standard deviation, and is decided by
    its most probable class (`Readout.decide`). None: nothing is claimed beyond mean and sd.
    """

    readout: Name
    mean: float
    sd: NonNegative
    dof: Annotated[float, Field(gt=2)] | None = None


class Joint(Value):
    """A joint normal over readouts: mean (n), covariance (n x n), in the readouts' units."""

    readouts: tuple[Name, ...]
    mean: tuple[float, ...]
    cov: tuple[tuple[float, ...], ...]

    @model_validator(mode="after")
    def _square(self) -> Self:
        n = len(self.readouts)
        if len(self.mean) != n or len(self.cov) != n or any(len(row) != n for row in self.cov):
            raise ValueError(f"joint of {n} readouts: expected mean ({n}) and covariance ({n} x {n})")
        return self


class Response(Value):
    """The known change of one readout under a training perturbation."""

    perturbation: Perturbation
    readout: Name
    value: float
    se: NonNegative


class TrainingResidual(Value):
    """A training response beside what the simulator predicts for it. The residual is value - predicted."""

    perturbation: Name
    targets: tuple[Name, ...]
    readout: Name
    predicted: float
    sd: NonNegative
    value: float
    se: NonNegative


class Refit(Value):
    """What the simulator predicts for the case after it was updated on these measurements (ids, sorted)."""

    measurements: tuple[Name, ...] = Field(min_length=1)
    predictions: tuple[Prediction, ...]


class AdapterInputs(Value):
    """Everything an adapter may use for one case, apart from the observations. Archived, so that it can be replayed.

    `training` holds only perturbations that share no target with the case; truth cells of no case are in it. `refits`
    were made from sealed observations: an adapter may use the one for the observations it is given, and no other.
    """

    readouts: tuple[Name, ...]
    predictions: tuple[Prediction, ...]
    training: tuple[TrainingResidual, ...] = ()
    refits: tuple[Refit, ...] = ()


# --- requests and replies ----------------------------------------------------------------------------------------

Step = Literal["predict", "review", "select", "revise", "plan", "look", "answer", "judge", "rewrite"]
"""The loop's four steps; those of a prompting strategy on a static item (plan, look, answer); the judge's; and the
rewriting of a wrong answer into a distractor."""


class Message(Value):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    parts: tuple[Part, ...]


class Request(Value):
    """What an interpreter is asked: the conversation and what the reply must answer."""

    step: Step
    messages: tuple[Message, ...]
    readouts: tuple[Readout, ...] = ()
    menu: tuple[Measurement, ...] = ()

    @property
    def menu_ids(self) -> tuple[str, ...]:
        """The ids that a proposal may name."""
        return tuple(m.id for m in self.menu)


ReplyStatus = Literal[
    "ok",
    "empty",
    "refused",
    "filtered",
    "truncated",
    "truncated_in_reasoning",
    "malformed",
    "timeout",
    "connection",
    "rate_limited",
    "server_error",
    "quota",
    "bad_request",
]
"""How one attempt ended. Only "ok" has text that may be read as an answer."""


class Usage(Value):
    """Tokens of one reply, as the server counted them; None where it did not say."""

    prompt_tokens: int | None = Field(default=None, ge=0, lt=2**53)
    completion_tokens: int | None = Field(default=None, ge=0, lt=2**53)


class Reply(Value):
    """One attempt's outcome. `text` is the raw reply; `reasoning` is archived and never parsed as the answer.

    `sent` says which settings really went out, where the interpreter had to adapt them to the server.
    """

    status: ReplyStatus = "ok"
    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    usage: Usage = Usage()
    error: str = ""
    retry_after_s: NonNegative | None = None
    sent: dict[str, Any] = {}

    def with_texts(self, change: Callable[[str], str], **others: Any) -> Reply:
        """The reply with every text in it changed, and `others` of its fields set to something else."""
        texts = {name: text for name in ("text", "reasoning", "error") if (text := getattr(self, name))}
        return self.model_copy(update={name: change(text) for name, text in texts.items()} | others)


class Answer(Value):
    """One answer to one readout. Missing is a status: nothing stands in for an answer that could not be read."""

    readout: Name
    status: Literal["answered", "missing", "invalid"]
    label: str | None = None
    value: float | None = None
    confidence: float | None = None
    probabilities: tuple[float, ...] | None = None
    reason: str = ""

    @model_validator(mode="after")
    def _status_fits(self) -> Self:
        if (self.status == "answered") != (self.label is not None):
            raise ValueError(f"answer to {self.readout!r}: a label goes with status 'answered' and no other")
        return self


# --- files -------------------------------------------------------------------------------------------------------


class CaseFile(Value):
    """A frozen case file: the cases and everything that fixes what they mean.

    `data` maps the name of each data set to the sha256 of its canonical content; `frozen` is what the setting fixed
    (thresholds, graph, seeds, split sizes) and is read by that setting alone. `synthetic` marks a generated twin.
    """

    version: int = Field(ge=1, le=1)
    setting: Name
    title: Name
    data: dict[str, str]
    synthetic: bool = False
    seed: int
    frozen: dict[str, Any]
    cases: tuple[Case, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _unique_cases(self) -> Self:
        ids = [case.id for case in self.cases]
        twice = sorted({i for i in ids if ids.count(i) > 1})
        if twice:
            where = {i: [n for n, other in enumerate(ids, start=1) if other == i] for i in twice}
            raise ValueError("case id repeated: " + "; ".join(f"{i!r} (cases {where[i]})" for i in twice))
        return self


# --- protocols ---------------------------------------------------------------------------------------------------


class TrainingData(Protocol):
    """What a setting offers to simulators. `kind` says which simulators can learn from it."""

    kind: ClassVar[str]


@runtime_checkable
class EvidenceSetting(Protocol):
    """A source of cases: their evidence, their observations and their truth.

    A setting is opened on a case file and on data. Opening checks that the data is what the case file was frozen on
    (DataError otherwise). Nothing that a method returns before `observe` may depend on a hidden outcome.

    Optional: `predicted(case, predictions, modalities) -> Evidence`, the setting's own view of the simulator's
    predictions, and the classmethod `freeze(data, shape, seed, options) -> CaseFile`.
    """

    @classmethod
    def open(cls, case_file: CaseFile, data: Path | None) -> Self:
        """Open the case file on data: an explicit path, else VCLOOP_DATA and the user cache are searched."""
        ...

    def cases(self) -> tuple[Case, ...]:
        """The cases, in the order of the case file."""
        ...

    def evidence(self, case: Case, modalities: Sequence[str]) -> Evidence:
        """What a model sees before any measurement, apart from the simulator's predictions."""
        ...

    def observe(self, case: Case, measurement: Measurement, seed: int) -> Observed:
        """Measure: a pure function of its arguments."""
        ...

    def truth(self, case: Case) -> tuple[Truth, ...]:
        """The hidden outcome of every readout, in the order of the case's readouts. For scoring only."""
        ...

    def training(self) -> TrainingData | None:
        """What simulators may learn from; None where the setting has no simulator."""
        ...

    def responses(self, case: Case) -> tuple[Response, ...]:
        """Known responses of training perturbations that share no target with the case."""
        ...

    def baselines(self, case: Case) -> Mapping[str, tuple[Prediction, ...]]:
        """The setting's own naive predictions by name (such as additive); may be empty."""
        ...


@runtime_checkable
class Simulator(Protocol):
    """Predicts the readouts of a perturbation.

    Optional: `refit(perturbation, readouts, observations) -> predictions`, the predictions of a copy of the simulator
    that was updated on observations of this perturbation. It changes nothing in the simulator itself.
    """

    Options: ClassVar[type[Value]]
    accepts: ClassVar[str]

    def fit(self, training: Any, *, seed: int) -> None:
        """Learn from training data of the kind `accepts`."""
        ...

    def predict(self, perturbation: Perturbation, readouts: Sequence[str]) -> tuple[Prediction, ...]:
        """Predict every readout, in the order given."""
        ...


@runtime_checkable
class Adapter(Protocol):
    """Carries observed values over to the simulator's other outputs. A pure function of its arguments.

    Optional: `joint(inputs, observations) -> Joint`, the joint posterior of all readouts, which the policies eig and
    eag choose by; and `needs_refits = True` for an adapter that looks up `inputs.refits`.
    """

    Options: ClassVar[type[Value]]

    def calibrate(self, inputs: AdapterInputs, observations: Sequence[Observation]) -> tuple[Prediction, ...]:
        """Calibrated predictions, one for each of `inputs.readouts`, in that order."""
        ...


@runtime_checkable
class Interpreter(Protocol):
    """Replies to requests. One call of `ask` is one attempt: retries belong to the loop.

    Optional: `metered = False` where a reply costs no tokens; `check()`, called before a run, raises ConfigError;
    `taken_up(request, reply)`, told of replies that a resumed run took from its archive; `aclose()`; `secrets()`.
    Where several processes ask: `in_order = True` for one that must not be among them; and `findings`, an attribute
    that is None until its first reply: only one process asks until then, and the others are given what it has found.
    """

    Options: ClassVar[type[Value]]
    modalities: ClassVar[frozenset[str]]

    def identity(self) -> dict[str, Any]:
        """JSON-able facts that decide the reply (model, sampling settings); archived with every request. No keys."""
        ...

    async def ask(self, request: Request, blobs: Mapping[str, bytes], *, repeat: int) -> Reply:
        """One attempt. Never raises for what a server or a model does: that is a status of the reply."""
        ...


class SelectionView(Value):
    """What a policy may look at. `open_menu` leaves out what was measured and what the budget cannot pay.

    joint: the adapter's posterior of all readouts so far, None where the adapter has none. noise: readout -> expected
    standard error of measuring it, from training responses, never from a sealed observation.
    """

    case: Name
    open_menu: tuple[Measurement, ...]
    predictions: tuple[Prediction, ...] = ()
    proposal: str | None = None
    readouts: tuple[Readout, ...] = ()
    joint: Joint | None = None
    noise: dict[str, NonNegative] = {}


@runtime_checkable
class SelectionPolicy(Protocol):
    """Chooses one measurement from the menu.

    Optional: `needs_joint = True` for a policy that cannot choose without the adapter's joint posterior, and
    `check(cases, measurements)`, which raises ConfigError before the first call where the policy does not fit.
    """

    Options: ClassVar[type[Value]]
    uses_proposal: ClassVar[bool]

    def select(self, view: SelectionView, *, seed: int) -> str | None:
        """The id of an entry of `view.open_menu`, or None to stop measuring."""
        ...
