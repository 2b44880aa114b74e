"""cpa-tools 0.8.8 and scvi-tools 0.20.3 on today's packages, without their side effects on the process.

Everything that the import needs is put in place around the import and taken away after it: a stub for cpa's tuner
(which wants ray), one for tkinter where Python has none, and four names that anndata and jax dropped. `fresh` fences
off what upstream keeps on classes, so that two data sets in one process do not see each other.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import logging
import os
import random
import sys
import types
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from evidence.errors import ConfigError

PACKAGE, VERSION = "cpa-tools", "0.8.8"
INSTALL = (
    'pip install -e ".[cpa]"',
    f"pip install --no-deps --ignore-requires-python {PACKAGE}=={VERSION}",
)
_NEEDED = (PACKAGE, "torch", "scvi-tools", "pytorch-lightning", "anndata")
_CLASS_STATE = ("pert_encoder", "covars_encoder", "pert_smiles_map")


class Upstream(NamedTuple):
    """The parts of cpa-tools that we use."""

    CPA: Any
    CPAModule: Any
    REGISTRY: Any


def require() -> None:
    """Raise ConfigError with both install lines unless cpa-tools 0.8.8 and what it runs on are installed."""
    lines = " && ".join(INSTALL)
    for package in _NEEDED:
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            raise ConfigError(f"CPA needs {package}, which is not installed. Install it with: {lines}") from None
        if package == PACKAGE and found != VERSION:
            empty = " (an empty package: what a plain pip install takes on Python 3.11)" if found == "0.0.0" else ""
            raise ConfigError(f"expected {PACKAGE} {VERSION}, got {found}{empty}. Install it with: {lines}")


def versions() -> dict[str, str]:
    """Versions of the packages that decide a prediction."""
    names = (*_NEEDED, "numpy", "scipy")
    return {name: importlib.metadata.version(name).partition("+")[0] for name in names}


@cache
def load() -> Upstream:
    """Import cpa. Raises ConfigError with both install lines if it is missing, empty or another version."""
    require()
    with quiet(), seeded(0), _shims():
        cpa = importlib.import_module("cpa")
        utils = importlib.import_module("cpa._utils")
    return Upstream(cpa.CPA, cpa.CPAModule, utils.CPA_REGISTRY_KEYS)


@contextlib.contextmanager
def fresh(upstream: Upstream) -> Iterator[None]:
    """Inside, upstream's classes know no data set; after, they hold again what they held before.

    Without this a second data set is encoded with the first one's drugs, which turns every unknown drug into control.
    """
    registry, cpa = upstream.REGISTRY, upstream.CPA
    kept = {name: getattr(cpa, name) for name in _CLASS_STATE}
    keys = dict(vars(registry))
    managers = {name: dict(getattr(cpa, name)) for name in dir(cpa) if name.endswith("_manager_store")}
    try:
        for name in _CLASS_STATE:
            setattr(cpa, name, None)
        vars(registry).clear()  # what stands on the class itself are upstream's defaults
        yield
    finally:
        for name, value in kept.items():
            setattr(cpa, name, value)
        vars(registry).clear()
        vars(registry).update(keys)
        for name, store in managers.items():
            getattr(cpa, name).clear()
            getattr(cpa, name).update(store)


@contextlib.contextmanager
def seeded(seed: int, threads: int | None = None) -> Iterator[None]:
    """Seed `random`, numpy and torch inside; after, put back their states, torch's threads and the environment.

    Lightning's global seeding and some imports leave environment variables behind.
    """
    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()
    environment = dict(os.environ)
    small = seed % 2**32
    try:
        random.seed(small)
        np.random.seed(small)
        torch.default_generator.manual_seed(small)
        if threads is not None:
            torch.set_num_threads(threads)
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_num_threads(states[3])
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings, no log lines below errors, nothing printed from inside (upstream prints to both streams)."""
    disabled = logging.root.manager.disable
    with (
        open(os.devnull, "w") as nowhere,  # noqa: PTH123 - os.devnull is no file
        warnings.catch_warnings(),
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(disabled)


@contextlib.contextmanager
def _shims() -> Iterator[None]:
    """What the import of cpa and scvi expects, taken away afterwards."""
    import anndata
    import anndata._core.sparse_dataset as sparse_dataset
    import jax

    stubs: dict[str, dict[str, Any]] = {"cpa._tuner": {"run_autotune": None}}  # cpa/__init__ imports the name
    if importlib.util.find_spec("_tkinter") is None:
        stubs["tkinter"] = {"N": "n"}  # cpa/_model imports the name and never uses it
    if importlib.util.find_spec("jaxlib.xla_extension") is None:
        stubs["jaxlib.xla_extension"] = {}
    put = [name for name in stubs if name not in sys.modules]
    for name in put:
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(stubs[name])
    wanted = (
        (anndata, "read", anndata.read_h5ad),
        (sparse_dataset, "SparseDataset", sparse_dataset.BaseCompressedSparseDataset),
        (jax.random, "KeyArray", jax.Array),
        (importlib.import_module("jaxlib.xla_extension"), "Device", jax.Device),
    )
    added = [(module, name) for module, name, value in wanted if _add(module, name, value)]
    try:
        yield
    finally:
        for module, name in added:
            delattr(module, name)
        for name in put:
            sys.modules.pop(name, None)


def _add(module: Any, name: str, value: Any) -> bool:
    if name in vars(module):
        return False
    setattr(module, name, value)
    return True
