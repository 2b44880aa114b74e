"""Microscopy case files: which fields are asked about, which stand as references, and the check of both.

Test treatments and reference treatments are chosen by seeded rules from the tables alone; no pixel is looked at.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from evidence.bbbc021 import Source, SourceName, content_hash
from evidence.bbbc021_tables import Field, Rule, evaluable
from evidence.case_files import frozen_part
from evidence.contracts import Case, CaseFile, Measurement, Perturbation, Readout
from evidence.errors import ConfigError, DataError
from evidence.values import Value, derive_seed

SETTING = "microscopy"
Shape = Literal["published", "extended"]
N_CLASSES, N_TESTS = 5, 9
ROWS_PER_CLASS = 24
CONTROLS_PER_PLATE = 6
READOUT = "mechanism"

RULES_IN_WORDS = {
    "classes": "published: the five mechanisms with most compounds, ties by the number of imaged fields; extended: all",
    "tests": "published: two test compounds from each class with four or more, one from the others; extended: every "
    "compound once. One treatment of each, drawn by the seed, with two sites of a well where there is such a well",
    "references": "at most 24 fields a class, drawn by the seed round-robin over compounds and then doses; published: "
    "of compounds that are no test; extended: for each case those of other compounds",
    "normalisation": "features minus the control wells of the plate, shrunk towards those of the week, over the spread "
    "of controls and references",
    "display": "window of each channel: percentiles 1 and 99.8 over controls and references of the same plate where "
    "they exist, else over the references",
}


class Query(Value):
    """The field a case asks about, and a second site of the same well (None: there is none on record)."""

    field: str
    second: str | None


class MicroscopyFrozen(Value):
    """What the setting fixed. Fields are plate/well/site; a label is never in the file."""

    source: SourceName
    shape: Shape
    rule: Rule
    profiles: bool
    classes: tuple[str, ...]
    queries: dict[str, Query]
    pool: tuple[str, ...]
    controls: tuple[str, ...]
    not_evaluable: tuple[str, ...] = ()
    rules: dict[str, str]


def freeze(
    source: Source,
    shape: Shape,
    *,
    seed: int,
    rule: Rule = "compound",
    profiles: bool = False,
    classes: Sequence[str] = (),
) -> CaseFile:
    """Make a case file. Raises ConfigError where the source cannot fill the shape."""
    by_class = _by_class(f for f in source.fields if f.treatment.moa is not None)
    chosen = sorted(classes or _classes(by_class, shape))
    unknown = [c for c in chosen if c not in by_class]
    if unknown:
        raise ConfigError(f"no mechanism {unknown[0]!r}. Known: {', '.join(sorted(by_class))}")
    tests = {c: _test_compounds(by_class[c], shape, derive_seed(seed, "tests", c)) for c in chosen}
    if shape == "published" and sum(map(len, tests.values())) != N_TESTS:
        raise ConfigError(f"expected {N_TESTS} test compounds from five classes, got {sum(map(len, tests.values()))}")
    pool: list[Field] = []
    for c in chosen:
        free = {k: v for k, v in by_class[c].items() if shape == "extended" or k not in tests[c]}
        pool += _round_robin(free, derive_seed(seed, "pool", c))[:ROWS_PER_CLASS]
    queries, left_out = [], []
    for compound in sorted(k for names in tests.values() for k in names):
        fields = next(by_class[c][compound] for c in chosen if compound in tests[c])
        query, second = _query(fields, derive_seed(seed, "query", compound))
        if evaluable(query, pool, rule):
            queries.append((query, second))
        else:
            left_out.append(query.id)
    random.Random(derive_seed(seed, "order")).shuffle(queries)  # noqa: S311 - not for secrets
    named = {
        f"field-{n:02d}": Query(field=q.id, second=None if s is None else s.id)
        for n, (q, s) in enumerate(queries, start=1)
    }
    frozen = MicroscopyFrozen(
        source=source.name,
        shape=shape,
        rule=rule,
        profiles=profiles,
        classes=tuple(chosen),
        queries=named,
        pool=tuple(f.id for f in pool),
        controls=_controls(source.fields, [*pool, *(f for q in queries for f in q if f is not None)], seed),
        not_evaluable=tuple(left_out),
        rules=RULES_IN_WORDS,
    )
    used = used_fields(source, frozen)
    source.check(used)
    return CaseFile(
        version=1,
        setting=SETTING,
        title=f"Microscopy ({shape}): {len(named)} treatments, {len(chosen)} mechanisms, {source.name}",
        data={"bbbc021": content_hash(source, used)},
        synthetic=source.name == "twin",
        seed=seed,
        frozen=frozen.model_dump(mode="json"),
        cases=tuple(make_case(name, frozen.classes, query) for name, query in named.items()),
    )


def read_frozen(case_file: CaseFile) -> MicroscopyFrozen:
    """The frozen part, checked. Raises ConfigError naming the field."""
    frozen = frozen_part(case_file, MicroscopyFrozen)
    expected = tuple(make_case(name, frozen.classes, query) for name, query in frozen.queries.items())
    if sorted(case_file.cases, key=lambda c: c.id) != sorted(expected, key=lambda c: c.id):
        raise ConfigError(f"case file {case_file.title!r}: the cases are not those of frozen.queries; freeze it again")
    return frozen


def used_fields(source: Source, frozen: MicroscopyFrozen) -> list[Field]:
    """Every field the case file rests on. Raises DataError naming those that the source's tables lack."""
    wanted = [f for q in frozen.queries.values() for f in (q.field, q.second) if f is not None]
    ids = sorted({*wanted, *frozen.pool, *frozen.controls})
    known = {f.id: f for f in source.fields}
    absent = [i for i in ids if i not in known]
    if absent:
        raise DataError(f"the tables of {source.name!r} lack the fields {', '.join(absent)}")
    return [known[i] for i in ids]


def make_case(name: str, classes: Sequence[str], query: Query) -> Case:
    """A case in words that say neither compound nor plate nor dose."""
    readout = Readout(
        id=READOUT,
        name="mechanism of action of the hidden compound",
        description="one class for the treatment shown in the query",
        labels=tuple(classes),
    )
    menu = (
        Measurement(id="actin", name="F-actin of the same field", description="the third stain of the query field"),
        Measurement(
            id="second_field", name="A second field of the same well", description="DNA and tubulin of another site"
        ),
    )
    hidden = Perturbation(id=name, name="hidden compound", targets=(name,), action="treated for 24 hours")
    return Case(
        id=name, title=f"Mechanism of a hidden compound, {name}", perturbation=hidden, readouts=(readout,), menu=menu
    )


Compounds = Mapping[str, list[Field]]


def _by_class(fields: Iterable[Field]) -> dict[str, dict[str, list[Field]]]:
    found: dict[str, dict[str, list[Field]]] = defaultdict(lambda: defaultdict(list))
    for field in fields:
        found[str(field.treatment.moa)][field.treatment.compound].append(field)
    return found


def _classes(by_class: Mapping[str, Compounds], shape: Shape) -> list[str]:
    able = [c for c, compounds in by_class.items() if len(compounds) > 1]
    if shape == "extended":
        return able
    able.sort(key=lambda c: (-len(by_class[c]), -sum(map(len, by_class[c].values())), c))
    return able[:N_CLASSES]


def _test_compounds(compounds: Compounds, shape: Shape, seed: int) -> list[str]:
    if shape == "extended":
        return sorted(compounds)
    count = 2 if len(compounds) >= 4 else 1
    paired = sorted(c for c, fields in compounds.items() if _wells(fields))
    return random.Random(seed).sample(paired, min(count, len(paired)))  # noqa: S311


def _wells(fields: Iterable[Field]) -> list[list[Field]]:
    """Wells with at least two sites."""
    wells: dict[tuple[str, str], list[Field]] = defaultdict(list)
    for field in fields:
        wells[field.plate, field.well].append(field)
    return [sites for _, sites in sorted(wells.items()) if len(sites) > 1]


def _query(fields: Sequence[Field], seed: int) -> tuple[Field, Field | None]:
    rng = random.Random(seed)  # noqa: S311
    treatments = sorted({f.treatment for f in fields if _wells(g for g in fields if g.treatment == f.treatment)})
    if not treatments:
        return rng.choice(sorted(fields)), None
    treatment = rng.choice(treatments)
    one, other = rng.sample(rng.choice(_wells(f for f in fields if f.treatment == treatment)), 2)
    return one, other


def _round_robin(compounds: Compounds, seed: int) -> list[Field]:
    """Fields in turn from every compound, and within a compound from every dose."""
    rng = random.Random(seed)  # noqa: S311
    queues = []
    for _, fields in sorted(compounds.items()):
        doses: dict[float, list[Field]] = defaultdict(list)
        for field in sorted(fields):
            doses[field.treatment.dose].append(field)
        for group in doses.values():
            rng.shuffle(group)
        queues.append(_in_turn([group for _, group in sorted(doses.items())]))
    return _in_turn(queues)


def _in_turn(queues: Sequence[Sequence[Field]]) -> list[Field]:
    longest = max(map(len, queues), default=0)
    return [queue[at] for at in range(longest) for queue in queues if at < len(queue)]


def _controls(fields: Sequence[Field], used: Sequence[Field], seed: int) -> tuple[str, ...]:
    """Control fields of the plates used; of other plates of their weeks where a plate has none."""
    rng = random.Random(derive_seed(seed, "controls"))  # noqa: S311
    plates: dict[str, list[Field]] = defaultdict(list)
    for field in fields:
        if field.treatment.control:
            plates[field.plate].append(field)
    wanted = {f.plate for f in used}
    lonely = {f.batch for f in used if f.plate not in plates}
    chosen = []
    for plate, controls in sorted(plates.items()):
        if plate in wanted or controls[0].batch in lonely:
            chosen += rng.sample(controls, min(CONTROLS_PER_PLATE, len(controls)))
    return tuple(sorted(f.id for f in chosen))
