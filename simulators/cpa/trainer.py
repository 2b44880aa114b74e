"""From cells to a CPA response table: ensemble, counterfactual predictions. Resumable by member."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evidence.expression import CellData
from evidence.strict_yaml import parse_value
from simulators.cpa import compat
from simulators.response_table import ResponseTable


def train_table(
    data: CellData,
    *,
    options: Mapping[str, Any],
    members: int,
    seed: int,
    annotations: Path | None,
    folder: Path,
    say: Callable[[str], None],
) -> ResponseTable:
    """Train `members` networks with the held-out combinations left out, and predict every wanted one that CPA can.

    `annotations` are not used: CPA learns an embedding for each drug. Members found in `folder` are not trained again.
    Raises ConfigError for bad options or a missing package, DataError for data that cannot be trained on.
    """
    compat.require()
    from simulators.cpa.facts import CpaOptions
    from simulators.cpa.model import Cpa

    settings = parse_value(json.dumps(dict(options)), CpaOptions, where="options", as_json=True)
    cpa = Cpa.train(data, settings, members=members, seed=seed, out=folder / "members", say=say)
    skipped = [c.id for c in data.wanted if not cpa.can_predict(c)]
    if skipped:
        say(f"no prediction, a drug is in no training condition: {', '.join(skipped)}")
    return cpa.table([c for c in data.wanted if cpa.can_predict(c)], synthetic=data.synthetic)
