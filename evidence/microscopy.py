"""The microscopy setting: BBBC021, the mechanism class of a hidden compound from DNA and tubulin of one field.

In order: open on pixels, then what a run asks for: evidence, menu, observation, truth. There is no simulator. Case
files are made by `freeze`; the rules are in evidence.microscopy_cases and, in words, in every case file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from evidence import display
from evidence.bbbc021 import Source, SourceName, Windows, content_hash, open_source
from evidence.bbbc021_tables import CHANNELS, RULES, Field, legal_references
from evidence.cell_features import NAMES, Array, features
from evidence.contracts import (
    Case,
    CaseFile,
    Evidence,
    Measurement,
    Observation,
    Observed,
    Part,
    Prediction,
    Response,
    Text,
    TrainingData,
    Truth,
)
from evidence.errors import ConfigError, ContractError, DataError, did_you_mean
from evidence.microscopy_cases import MicroscopyFrozen, Shape, freeze, read_frozen, used_fields
from evidence.microscopy_features import (
    ADDED,
    INITIAL,
    Normaliser,
    Rows,
    field_means,
    fit_normaliser,
    query_table,
    reference_table,
)
from evidence.microscopy_figures import REFERENCE_PLACES, Display, Drawn, query_figure, reference_figures

__all__ = ["Microscopy", "freeze"]

T = TypeVar("T")

SYSTEM = (
    "MCF-7 breast cancer cells, fluorescence micrographs 24 hours after one compound was added; DNA (DAPI) and "
    "beta-tubulin are shown, F-actin was stained too. The hidden compound is none of the reference compounds. Asked "
    "for is its class of mechanism. Reference images and features come from treatments of known class. "
)
SYNTHETIC = "Synthetic data: the cells are generated, and the classes are made up. "
FEATURES = (
    "Features are computed from pixels around each nucleus (N shape of the nucleus, D DNA, T tubulin, A F-actin, pairs "
    "of letters for correlations), relative to untreated control wells of the same plate or week, averaged over a "
    "field."
)
SHAPES: Mapping[str, Shape] = {"published": "published", "extended": "extended"}
SOURCES: Mapping[str, SourceName] = {"crops": "crops", "plates": "plates", "twin": "twin"}
OPTIONS = ("classes", "profiles", "rule", "source")
FIRST, ACTIN = ("DAPI", "Tubulin"), ("Actin",)


class _References(NamedTuple):
    """What one case may compare with: legal fields in row order, (n, n_features) field means, cells of each."""

    fields: tuple[Field, ...]
    means: Array
    counts: list[int]


class Microscopy:
    """The setting, opened on a case file and on a source of pixels."""

    def __init__(self, case_file: CaseFile, frozen: MicroscopyFrozen, source: Source, data: Path | None = None):
        self.case_file = case_file
        self.frozen = frozen
        self.source = source
        self.data = data
        self._made: dict[tuple[Any, ...], Any] = {}

    @classmethod
    def freeze(cls, *, data: Path | None, shape: str, seed: int, options: Mapping[str, str]) -> CaseFile:
        """Freeze a case file. Options: source (crops, plates, twin), rule, classes (a;b), profiles (yes, no)."""
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise ConfigError(f"no option {unknown[0]!r} for microscopy case files.{did_you_mean(unknown[0], OPTIONS)}")
        source = _choice("source", options.get("source", "crops"), SOURCES)
        rule = _choice("rule", options.get("rule", "compound"), RULES)
        profiles = _choice("profiles", options.get("profiles", "no"), {"yes": True, "no": False})
        classes = [c.strip() for c in options.get("classes", "").split(";") if c.strip()]
        opened = open_source(source, data)
        return freeze(opened, _choice("shape", shape, SHAPES), seed=seed, rule=rule, profiles=profiles, classes=classes)

    @classmethod
    def fetch(cls, case_file: CaseFile, folder: Path, say: Callable[[str], None]) -> None:
        """Bring the tables and the plates that the case file names, and no other, into a folder."""
        from evidence.bbbc021_fetch import fetch_plates  # httpx is slow to import: only a download pays for it

        fetch_plates(case_file, folder, say=say)

    @classmethod
    def open(cls, case_file: CaseFile, data: Path | None) -> Self:
        """Open on pixels. Raises one DataError for all missing files, or if the pixels are not those frozen on."""
        frozen = read_frozen(case_file)
        source = open_source(frozen.source, data)
        used = used_fields(source, frozen)
        source.check(used)
        found, expected = content_hash(source, used), case_file.data.get("bbbc021", "nothing")
        if found != expected:
            raise DataError(
                f"bbbc021 ({frozen.source}): expected the fields that the case file {case_file.title!r} was frozen on, "
                f"sha256 {expected}, got {found}. Use the same tables and images, or freeze a case file on these"
            )
        return cls(case_file, frozen, source, data)

    @classmethod
    def on_source(cls, case_file: CaseFile, source: Source) -> Self:
        """Open on a source already read, without comparing the hash (`open` does)."""
        return cls(case_file, read_frozen(case_file), source)

    def cases(self) -> tuple[Case, ...]:
        """The cases, in the order of the case file."""
        return self.case_file.cases

    def evidence(self, case: Case, modalities: Sequence[str]) -> Evidence:
        """DNA and tubulin of the query beside the references: as features ("table"), as images ("figure")."""
        query = self._field(self.frozen.queries[case.id].field)
        words = (SYNTHETIC if self.case_file.synthetic else "") + SYSTEM + (FEATURES if "table" in modalities else "")
        parts: list[Part] = [Text(text=words.strip())]
        if "table" in modalities:
            known = self._references(query)
            parts.append(reference_table("reference features", *known, INITIAL))
            parts.append(query_table("query features", *self._row(query, query), INITIAL))
            parts += self._profiles(query, actin=False)
        drawn = self._figures(query, query, "query", FIRST, references=True) if "figure" in modalities else []
        return Evidence((*parts, *(figure for figure, _ in drawn)), {f.sha256: data for f, data in drawn})

    def observe(self, case: Case, measurement: Measurement, seed: int) -> Observed:
        """F-actin of the same field, or DNA and tubulin of a second one. The seed changes nothing: images are kept."""
        if measurement not in case.menu:
            raise ContractError(f"measurement {measurement.id!r} is not on the menu", case=case.id, step="observe")
        query = self._field(self.frozen.queries[case.id].field)
        second = self.frozen.queries[case.id].second
        parts: list[Part] = []
        if measurement.id == "actin":
            known, seen = self._references(query), query
            parts.append(reference_table("reference features, F-actin", *known, ADDED))
            parts.append(query_table("query features, F-actin", *self._row(query, query), ADDED))
            parts += self._profiles(query, actin=True)
            drawn = self._figures(query, query, "query, F-actin", ACTIN, references=True)
        elif second is None:
            reason = "there is no second field of this well on record"
            told = (Text(text=f"The measurement could not be made: {reason}."),)
            missing = Observation(measurement=measurement.id, status="missing", reason=reason, parts=told)
            return Observed(missing, {})
        else:
            seen = self._field(second)
            parts.append(query_table("query features, second field", *self._row(query, seen), INITIAL))
            drawn = self._figures(query, seen, "query, second field", FIRST, references=False)
        observation = Observation(
            measurement=measurement.id,
            n_cells=len(self.source.windows(seen)),
            parts=(*parts, *(figure for figure, _ in drawn)),
        )
        return Observed(observation, {figure.sha256: data for figure, data in drawn})

    def truth(self, case: Case) -> tuple[Truth, ...]:
        """The mechanism by the label table. For scoring only."""
        label = self._field(self.frozen.queries[case.id].field).treatment.moa
        if label not in self.frozen.classes:
            raise DataError(f"case {case.id!r}: expected a label among {list(self.frozen.classes)}, got {label!r}")
        return tuple(Truth(readout=r.id, label=label) for r in case.readouts)

    def training(self) -> TrainingData | None:
        """None: there is no simulator of images."""
        return None

    def responses(self, case: Case) -> tuple[Response, ...]:
        """None: the readout is a class."""
        return ()

    def baselines(self, case: Case) -> Mapping[str, tuple[Prediction, ...]]:
        """None: predictions are for numeric readouts."""
        return {}

    @cached_property
    def _by_id(self) -> Mapping[str, Field]:
        return {f.id: f for f in self.source.fields}

    def _field(self, field_id: str) -> Field:
        return self._by_id[field_id]

    @cached_property
    def _controls(self) -> tuple[Field, ...]:
        return tuple(self._field(i) for i in self.frozen.controls)

    def _legal(self, query: Field) -> tuple[Field, ...]:
        return legal_references(query, [self._field(i) for i in self.frozen.pool], self.frozen.rule)

    def _rows(self, fields: Sequence[Field]) -> Rows:
        made = [(features(self.source.windows(f)), f) for f in fields]
        values = np.concatenate([v for v, _ in made]) if made else np.zeros((0, len(NAMES)))
        return Rows(values, tuple(f for v, f in made for _ in range(len(v))))

    def _once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Work that several cases share: legal fields, and so all that follows from them, seldom differ."""
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def _normaliser(self, legal: tuple[Field, ...]) -> Normaliser:
        return self._once(("normaliser", legal), lambda: fit_normaliser(self._rows(self._controls), self._rows(legal)))

    def _references(self, query: Field) -> _References:
        legal = self._legal(query)

        def make() -> _References:
            rows = self._rows(legal)
            means, counts = field_means(self._normaliser(legal)(rows), rows.fields, legal)
            return _References(legal, means, counts)

        return self._once(("references", legal), make)

    def _row(self, query: Field, seen: Field) -> tuple[Array, int]:
        rows = self._rows([seen])
        means, counts = field_means(self._normaliser(self._legal(query))(rows), rows.fields, [seen])
        return means[0], counts[0]

    def _profiles(self, query: Field, *, actin: bool) -> list[Part]:
        if not self.frozen.profiles:
            return []
        from evidence.profiles import neighbour_table

        return [neighbour_table(query, self._legal(query), self.source.fields, self.data, actin=actin)]

    def _display(self, plate: str, legal: Sequence[Field]) -> Display:
        """Windows of a plate: over its controls and legal references, else over all legal references."""
        own = tuple(f for f in (*self._controls, *legal) if f.plate == plate) or tuple(legal)

        def make() -> Display:
            stacks = [self.source.windows(f) for f in own]
            return {c: display.find_window([w[..., n] for w in stacks]) for n, c in enumerate(CHANNELS)}

        return self._once(("display", own), make)

    def _figures(
        self, query: Field, seen: Field, name: str, channels: Sequence[str], *, references: bool
    ) -> list[Drawn]:
        legal = self._legal(query)
        drawn = [query_figure(name, self.source.windows(seen), self._display(seen.plate, legal), channels)]
        if references:
            examples = self._examples(legal)
            shown = tuple((label, f, tuple(self._display(f.plate, legal).values())) for label, f in examples)
            title = "references, F-actin" if channels == ACTIN else "references"
            drawn += self._once(
                (title, shown), lambda: reference_figures(title, self._shown(examples, legal), channels)
            )
        return drawn

    def _examples(self, legal: Sequence[Field]) -> list[tuple[str, Field]]:
        """One field a class: the first of the pool with enough cells to fill its row, else the fullest."""
        found = []
        for label in self.frozen.classes:
            fields = [f for f in legal if f.treatment.moa == label]
            if fields:
                found.append((label, max(fields, key=lambda f: min(REFERENCE_PLACES, len(self.source.windows(f))))))
        return found

    def _shown(
        self, examples: Sequence[tuple[str, Field]], legal: Sequence[Field]
    ) -> list[tuple[str, Windows, Display]]:
        return [(label, self.source.windows(f), self._display(f.plate, legal)) for label, f in examples]


def _choice(name: str, given: str, choices: Mapping[str, T]) -> T:
    if given not in choices:
        raise ConfigError(f"option {name}: expected {' or '.join(choices)}, got {given!r}")
    return choices[given]
