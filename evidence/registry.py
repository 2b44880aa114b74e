"""Names of components, imported on use.

A name maps to "module:attribute". Ours are listed here; other packages add theirs through the entry-point groups
`vcloop.settings`, `vcloop.simulators`, `vcloop.adapters`, `vcloop.interpreters` and `vcloop.policies`. Nothing is
imported before it is asked for by name.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from typing import Any

from evidence.errors import ConfigError, ContractError, did_you_mean


class Registry:
    """One kind of component by name."""

    def __init__(self, kind: str, group: str, builtin: dict[str, str]):
        self.kind = kind
        self.group = group
        self._targets = dict(builtin)

    def add(self, name: str, target: str) -> None:
        """Register `target` ("module:attribute") under a name. Raises ContractError if the name is taken."""
        if self._all().get(name, target) != target:
            raise ContractError(
                f"{self.kind} {name!r} is already registered as {self._all()[name]}; choose another name"
            )
        self._targets[name] = target

    def names(self) -> tuple[str, ...]:
        """Every registered name, sorted."""
        return tuple(sorted(self._all()))

    def target(self, name: str) -> str:
        """The "module:attribute" behind a name. Raises ConfigError with the nearest names."""
        targets = self._all()
        if name not in targets:
            raise ConfigError(f"no {self.kind} named {name!r}.{did_you_mean(name, targets)}")
        return targets[name]

    def get(self, name: str) -> Any:
        """Import and return the component's class. Raises ConfigError (unknown name) or ContractError."""
        target = self.target(name)
        module, _, attribute = target.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ContractError(
                f"{self.kind} {name!r} is registered as {target!r}, which cannot be imported: {error}"
            ) from error

    def _all(self) -> dict[str, str]:
        found = _added(self.group)
        taken = sorted(name for name, value in found.items() if self._targets.get(name, value) != value)
        if taken:
            raise ContractError(
                f"an installed package registers the {self.kind} {taken[0]!r} ({found[taken[0]]}), which is "
                f"{self._targets[taken[0]]} here; rename it in that package's entry points"
            )
        return {**found, **self._targets}


@functools.cache
def _added(group: str) -> dict[str, str]:
    """What installed packages add: looking through all of them takes a while."""
    return {point.name: point.value for point in importlib.metadata.entry_points(group=group)}


SETTINGS = Registry(
    "evidence setting",
    "vcloop.settings",
    {
        "drug_combination": "evidence.drug_combination:DrugCombination",
        "drug_synergy": "evidence.drug_synergy:DrugSynergy",
        "gene_pair": "evidence.gene_pair:GenePair",
        "microscopy": "evidence.microscopy:Microscopy",
        "signaling": "evidence.signaling:Signaling",
    },
)
SIMULATORS = Registry(
    "simulator",
    "vcloop.simulators",
    {
        "bayes_net": "simulators.bayes_net:BayesNet",
        "cpa": "simulators.stored:Cpa",
        "gears": "simulators.stored:Gears",
        "pair_ridge": "simulators.pair_ridge:PairRidge",
    },
)
ADAPTERS = Registry(
    "adapter",
    "vcloop.adapters",
    {
        "affine": "adapters.affine:Affine",
        "gaussian": "adapters.gaussian:GaussianResiduals",
        "local": "adapters.local:Local",
        "none": "adapters.none:Uncalibrated",
        "refit": "adapters.refit:Refitted",
    },
)
INTERPRETERS = Registry(
    "interpreter",
    "vcloop.interpreters",
    {
        "openai": "interpreters.openai_client:OpenAIInterpreter",
        "pixels": "interpreters.pixels:PixelsInterpreter",
        "replay": "interpreters.replay:ReplayInterpreter",
        "rule_judge": "interpreters.rule_judge:RuleJudge",
        "rules": "interpreters.rules:RulesInterpreter",
        "scripted": "interpreters.scripted:ScriptedInterpreter",
    },
)
POLICIES = Registry(
    "selection policy",
    "vcloop.policies",
    {
        "eag": "loops.policies:ExpectedAccuracyGain",
        "eig": "loops.policies:ExpectedInformationGain",
        "fixed": "loops.policies:FixedOrder",
        "max_variance": "loops.policies:MaxVariance",
        "model": "loops.policies:ModelProposal",
        "random": "loops.policies:RandomChoice",
    },
)
TRAINERS = Registry(
    "trainer",
    "vcloop.trainers",
    {"cpa": "simulators.cpa.trainer:train_table", "gears": "simulators.gears.trainer:train_table"},
)
"""Functions behind `vcloop simulate`: they train a simulator and return a response table."""
REGISTRIES = (SETTINGS, SIMULATORS, ADAPTERS, INTERPRETERS, POLICIES)
