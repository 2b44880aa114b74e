"""The twin of BBBC021: small generated cells with the same schema and a known truth. Synthetic; no real pixel in it.

Five mechanisms. A changes the nucleus, B bundles tubulin, C dissolves it; D and E look alike in DNA and tubulin and
differ in actin alone. So the actin channel helps for D and E, and a second field helps nowhere in particular.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage as ndi

from evidence.bbbc021 import SIDE, SourceName, Windows
from evidence.bbbc021_tables import CONTROL, Field, JoinReport, Treatment
from evidence.errors import DataError
from evidence.values import derive_seed

CLASSES = {"mechanism A": 4, "mechanism B": 4, "mechanism C": 4, "mechanism D": 4, "mechanism E": 3}
"""Class -> number of compounds."""
PLATES = ("WeekA_1", "WeekA_2", "WeekB_1")
PER_FIELD = 3
SEED = 21


class Look(NamedTuple):
    """What a mechanism does: nucleus radius (pixels), tubulin contrast and grain, actin contrast and grain (pixels)."""

    radius: float = 10.0
    tubulin: float = 0.5
    tubulin_grain: float = 1.5
    actin: float = 0.5
    actin_grain: float = 1.5


LOOKS: Mapping[str | None, Look] = {
    None: Look(),
    "mechanism A": Look(radius=14.0),
    "mechanism B": Look(tubulin=0.9),
    "mechanism C": Look(tubulin=0.15),
    "mechanism D": Look(radius=8.0, actin=0.9, actin_grain=1.0),
    "mechanism E": Look(radius=8.0, actin=0.25, actin_grain=3.5),
}


class Twin(NamedTuple):
    """Generated fields; windows are drawn when asked for, from a seed and the field's id."""

    fields: tuple[Field, ...]
    report: JoinReport
    name: SourceName = "twin"

    @classmethod
    def make(cls) -> Twin:
        """Every compound on one well of two plates, two sites each; two control wells on every plate."""
        fields = [Field(p, f"B0{w}", s, Treatment(CONTROL, 0.0, None)) for p in PLATES for w in (1, 2) for s in "12"]
        for number, (moa, compound) in enumerate((m, c) for m, n in CLASSES.items() for c in range(n)):
            treatment = Treatment(f"compound {moa[-1]}{compound + 1}", 1.0, moa)
            plates = [PLATES[number % 3], PLATES[(number + 1) % 3]]
            fields += [Field(p, f"C{number + 1:02d}", s, treatment) for p in plates for s in "12"]
        fields.sort(key=lambda f: f.id)
        control = sum(f.treatment.control for f in fields)
        return cls(tuple(fields), JoinReport(len(fields) - control, 0, control, ()))

    def check(self, fields: Sequence[Field]) -> None:
        """Only the twin's own fields exist."""
        absent = [f.id for f in fields if f not in self.fields]
        if absent:
            raise DataError(f"the twin has no field {', '.join(absent)}")

    def windows(self, field: Field) -> Windows:
        """(3, 68, 68, 3) uint16."""
        return _windows(field.id, field.treatment.moa, field.batch)

    def content(self, field: Field) -> str:
        """Hash of what is drawn from: floating-point pixels differ between machines in the last count."""
        return hashlib.sha256(f"{SEED} {field.id} {LOOKS[field.treatment.moa]}".encode()).hexdigest()


@lru_cache(maxsize=512)
def _windows(field: str, moa: str | None, batch: str) -> Windows:
    rng = np.random.default_rng(derive_seed(SEED, field))
    gain = 1.0 if batch == "WeekA" else 1.6
    cells = np.stack([_cell(rng, LOOKS[moa], gain) for _ in range(PER_FIELD)])
    cells.setflags(write=False)
    return cells


def _cell(rng: np.random.Generator, look: Look, gain: float) -> Windows:
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    squeeze = rng.uniform(0.85, 1.15)
    inside = np.hypot(y * squeeze, x / squeeze) < look.radius * rng.uniform(0.92, 1.08)
    body = np.exp(-((np.hypot(y, x) / 26) ** 4))
    nucleus = ndi.gaussian_filter(inside.astype(float), 1.0) * (1 + 0.2 * _grain(rng, 1.5))
    tubulin = body * np.exp(look.tubulin * _grain(rng, look.tubulin_grain))
    actin = body * np.exp(look.actin * _grain(rng, look.actin_grain))
    planes = [200 + 6000 * nucleus, 300 + 5000 * actin, 300 + 4000 * tubulin]
    noise = [gain * plane * (1 + 0.03 * rng.standard_normal(plane.shape)) for plane in planes]
    return np.stack([np.clip(plane, 0, 65535) for plane in noise], axis=-1).astype(np.uint16)


def _grain(rng: np.random.Generator, scale: float) -> NDArray[np.float64]:
    smooth = ndi.gaussian_filter(rng.standard_normal((SIDE, SIDE)), scale)
    return np.asarray(smooth / smooth.std())
