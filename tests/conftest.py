"""What tests share: real data where it is on this machine, and a small run on the plugin's made-up strains."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import uvloop  # noqa: F401 - keeps the class of sockets it finds: now the real one, in a test perhaps pytest-socket's
import yaml
from vcloop_heat_shock.setting import HeatShock

from evidence.case_files import write_case_file
from evidence.combination_cells import CombinationCells
from evidence.contracts import CaseFile
from evidence.datasets import find
from evidence.errors import DataError
from evidence.perturbed import DataCard
from evidence.perturbed import make_cells as perturbed_cells
from loops.config import load_config
from loops.runner import run

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(autouse=True)
def _data_beside_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests use the shared data folder where there is one."""
    if SHARED.is_dir():
        monkeypatch.setenv("VCLOOP_DATA", str(SHARED))


@pytest.fixture
def sachs_cells() -> Path:
    """The real Sachs cells; the test is skipped where they are not on this machine."""
    try:
        found = find("sachs2005")
    except DataError as error:
        pytest.skip(f"needs the Sachs cells: {error}")
    if found is None:
        pytest.skip("needs the Sachs cells: vcloop data fetch sachs2005")
    return found


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def norman_devel() -> Path:
    """PerturBench's development file; the test is skipped where it is not on this machine."""
    found = find("norman")
    if found is None or not (found / "devel.h5ad").is_file():
        pytest.skip("needs PerturBench's devel.h5ad (vcloop data)")
    return found


@pytest.fixture(scope="session")
def combinations() -> Callable[..., CombinationCells]:
    """Make small cells under pairs of drugs; values of the conditions named in `shuffle` are permuted."""
    return _combinations


PAIR_SIZES = {"control": 150, "A": 60, "B": 60, "C": 60, "D": 60, "A+B": 100, "C+D": 96, "A+C": 70, "B+D": 60}
PAIR_EFFECTS = {"A": (0.9, 0.0, -0.4), "B": (0.0, 0.8, -0.2), "C": (-0.4, 0.1, 0.0), "D": (0.2, 0.0, 0.6)}
PAIR_GENES = tuple(f"{p}{n:02d}" for p in ("UPA", "UPB", "UPC", "BKG") for n in range(1, 16))


def _combinations(shuffle: tuple[str, ...] = (), seed: int = 3) -> CombinationCells:
    rng = np.random.default_rng(seed)
    rows, labels = [], []
    for label, n in PAIR_SIZES.items():
        activity = rng.normal(0, 0.25, (n, 3)) + sum(np.array(PAIR_EFFECTS.get(d, (0, 0, 0))) for d in label.split("+"))
        x = 1.2 + 0.3 * rng.standard_normal((n, len(PAIR_GENES)))
        x[:, :45] += np.repeat(activity, 15, axis=1)
        x = np.maximum(x, 0.01)
        rows.append(np.random.default_rng(8).permutation(x.ravel()).reshape(x.shape) if label in shuffle else x)
        labels += [label] * n
    card = DataCard(name="made-up", cell_line="A549")
    return CombinationCells("twin", perturbed_cells(np.concatenate(rows), PAIR_GENES, labels, card=card))


@pytest.fixture(scope="session")
def synergy_tables(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Write made-up tables in O'Neil's form; scores of the pairs in `shuffle` are other ones."""

    def write(shuffle: Collection[tuple[str, str]] = ()) -> Path:
        folder = tmp_path_factory.mktemp("synergy")
        rng, other = np.random.default_rng(1), np.random.default_rng(2)
        drugs = [f"DRUG-{letter}" for letter in "ABCDEFGHIJ"]
        strength, mood = rng.normal(0, 6, size=(len(drugs), 3)), rng.normal(size=(10, 3))
        scores = ["drug_a\tdrug_b\tcell_line\tscore\tfold"]
        for a, b in itertools.combinations(range(len(drugs)), 2):
            for line in range(10):
                value = float((strength[a] * strength[b] / 6) @ mood[line // 2] + rng.normal(0, 4))
                value = float(other.normal(0, 9)) if (drugs[a], drugs[b]) in shuffle else value
                scores += [f"{drugs[b]}\t{drugs[a]}\tLINE{line}\t{value}\t0"] * (1 + ((a + b + line) % 40 == 0))
        curves = ["Compound,Channel,Experiment,Dose,Response"]
        for n, drug in enumerate(drugs):
            for line in range(10):
                curves += [
                    f"{drug.capitalize()},LINE{line},0,{dose},{10 * dose * abs(strength[n, 0])}" for dose in (0.1, 1.0)
                ]
        (folder / "oneil_synergy.tsv").write_text("\n".join(scores) + "\n")
        (folder / "oneil_single_agent_dose_response.csv").write_text("\n".join(curves) + "\n")
        smiles = "\n".join(f"{d},C{'CO' * n}N" for n, d in enumerate(drugs))
        (folder / "oneil_smiles.csv").write_text(smiles + "\n")
        return folder

    return write


@pytest.fixture
def heat_shock_cases() -> CaseFile:
    """The plugin's case file: four cases with three readouts each."""
    return HeatShock.freeze(data=None, shape="all", seed=1, options={})


@pytest.fixture
def make_config(tmp_path: Path, heat_shock_cases: CaseFile) -> Callable[..., Path]:
    """Write a config on the plugin's cases; keyword arguments replace its keys (None removes one)."""
    write_case_file(tmp_path / "heat.json", heat_shock_cases)

    def make(**changes: Any) -> Path:
        config: dict[str, Any] = {
            "version": 1,
            "name": "heat",
            "cases": "heat.json",
            "simulator": "mean_response",
            "adapter": "affine",
            "interpreter": "rules",
            "attempts": {"backoff_s": 0},
        }
        config.update(changes)
        path = tmp_path / "heat.yaml"
        path.write_text(yaml.safe_dump({k: v for k, v in config.items() if v is not None}))
        return path

    return make


MARKUP = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
HOSTILE = MARKUP + "\u2028\x1b[31m\x00"
"""Words that a page must show as text: markup, a line separator, a terminal's colour, NUL."""


class HostileRuns(NamedTuple):
    """Two finished runs on the plugin's four cases, with hostile titles and replies; the second is shown figures."""

    rules: Path
    scripted: Path


@pytest.fixture(scope="session")
def hostile_runs(tmp_path_factory: pytest.TempPathFactory) -> HostileRuns:
    """A run of the rules, and one of a script that regresses, proposes nonsense, and is once unreadable."""
    folder = tmp_path_factory.mktemp("hostile")
    cases = HeatShock.freeze(data=None, shape="all", seed=1, options={})
    titled = [
        case.model_copy(update={"title": f"{case.id} {MARKUP}" if n == 0 else f"{case.id} of heat"})
        for n, case in enumerate(cases.cases)
    ]
    write_case_file(folder / "heat.json", cases.model_copy(update={"cases": tuple(titled)}))
    good = answer({"HSP70": "down", "HSP90": "near zero", "CDC6": "up"}, measurement="HSP70", note=HOSTILE)
    script = {"predict": [good], "review": [f"{HOSTILE} and no JSON"], "revise": [good]}
    runs = []
    for name, interpreter in (
        ("rules", "rules"),
        ("scripted", {"name": "scripted", "options": {"replies": script, "at_end": "repeat_last"}}),
    ):
        config = {
            "version": 1,
            "name": f"heat-{name}",
            "cases": "heat.json",
            "simulator": "mean_response",
            "adapter": "affine",
            "interpreter": interpreter,
            "attempts": {"backoff_s": 0},
        }
        path = folder / f"{name}.yaml"
        path.write_text(json.dumps(config))  # JSON is YAML, and keeps every escape
        run(load_config(str(path), shipped=folder), folder / f"heat-{name}")
        runs.append(folder / f"heat-{name}")
    return HostileRuns(*runs)


def answer(labels: Mapping[str, str], measurement: str | None = None, **more: Any) -> str:
    """A well-formed reply with these labels."""
    body: dict[str, Any] = {"answers": {k: {"label": v} for k, v in labels.items()}, "explanation": "because", **more}
    if measurement is not None:
        body["measurement"] = measurement
    return json.dumps(body)
