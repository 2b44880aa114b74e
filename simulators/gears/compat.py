"""cell-gears 0.1.2 on today's scipy, without its side effects on the process that uses it.

Importing it silences all warnings for good, seeds torch, and leaves download code armed: here the import is undone of
that, and the download functions refuse. `seeded` gives upstream's global random numbers a seed and then puts the
caller's state back.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import pickle
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple, NoReturn

import numpy as np
from scipy import sparse

from evidence.errors import ConfigError, ContractError, DataError

PACKAGE, VERSION = "cell-gears", "0.1.2"
INSTALL = 'pip install -e ".[gears]"'


class Upstream(NamedTuple):
    """The parts of cell-gears that we use."""

    PertData: Any
    GEARS: Any
    Model: Any
    gears: Any
    data_utils: Any


def require() -> None:
    """Raise ConfigError with the install line unless cell-gears 0.1.2, torch and torch_geometric are installed."""
    for package, wanted in ((PACKAGE, VERSION), ("torch", None), ("torch_geometric", None), ("scanpy", None)):
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            raise ConfigError(f"GEARS needs {package}, which is not installed. Install it with: {INSTALL}") from None
        if wanted is not None and found != wanted:
            raise ConfigError(f"expected {package} {wanted}, got {found}. Install it with: {INSTALL}")


def versions() -> dict[str, str]:
    """Versions of the packages that decide a prediction."""
    names = (PACKAGE, "torch", "torch_geometric", "numpy", "scipy", "scanpy")
    return {name: importlib.metadata.version(name).partition("+")[0] for name in names}


@cache
def load() -> Upstream:
    """Import cell-gears. Raises ConfigError with the install line if it is missing or another version."""
    require()
    with quiet(), seeded(0):
        import scanpy

        verbosity = scanpy.settings.verbosity
        with _without_dcor():
            from gears import data_utils, gears, model, pertdata, utils

        scanpy.settings.verbosity = verbosity
    for module in (pertdata, utils):
        for name in ("dataverse_download", "zip_data_download_wrapper", "tar_data_download_wrapper"):
            setattr(module, name, _only_local)
    for module in (data_utils, gears, pertdata, utils):
        module.print_sys = _say
        module.tqdm = _plain
    pertdata.pickle = utils.pickle = SimpleNamespace(load=_restricted_load, dump=_no_pickle)
    return Upstream(pertdata.PertData, gears.GEARS, model.GEARS_Model, gears, data_utils)


@contextlib.contextmanager
def _without_dcor() -> Iterator[None]:
    """Import GEARS without dcor, which compiles for seconds (and can abort) for one score that nothing here calls."""
    before = sys.modules.get("dcor")
    stand_in = ModuleType("dcor")
    stand_in.distance_correlation = _no_dcor  # type: ignore[attr-defined]
    sys.modules["dcor"] = stand_in
    try:
        yield
    finally:
        if before is None:
            del sys.modules["dcor"]
        else:
            sys.modules["dcor"] = before


def _no_dcor(*_: object) -> None:
    raise ContractError("GEARS' score of distance correlations is not used here: dcor is not imported")


@contextlib.contextmanager
def seeded(seed: int, threads: int | None = None) -> Iterator[None]:
    """Seed `random`, numpy and torch inside; put back the caller's states, and torch's thread count, after."""
    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()
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


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings from inside (the package triggers deprecations of pandas, scanpy and torch_geometric)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def progress(say: Callable[[str], None] | None) -> Iterator[None]:
    """Send what upstream prints (epochs, losses) to `say`; None drops it."""
    _SAY.append(say)
    try:
        yield
    finally:
        _SAY.pop()


@contextlib.contextmanager
def boolean_series() -> Iterator[None]:
    """Give pandas Series the `nonzero` that scipy calls on a boolean mask and pandas removed (GEARS.__init__)."""
    import pandas as pd

    if hasattr(pd.Series, "nonzero"):
        yield
        return
    pd.Series.nonzero = lambda series: series.to_numpy().nonzero()
    try:
        yield
    finally:
        del pd.Series.nonzero


_SAY: list[Callable[[str], None] | None] = [None]


def _say(text: object) -> None:
    say = _SAY[-1]
    if say is not None:
        say(str(text))


def _plain(iterable: Any, *_: Any, **__: Any) -> Any:
    return iterable


def _only_local(url: str, save_path: str, *_: Any) -> None:
    if not Path(save_path).exists():
        raise DataError(f"GEARS wants to download {url} to {save_path}: refused. Give the annotations as a file")


def _no_pickle(*_: Any, **__: Any) -> NoReturn:
    raise DataError("GEARS wants to write a pickle: refused")


class _Restricted(pickle.Unpickler):
    """Reads plain containers and texts; refuses every other class by name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {("builtins", "set"), ("builtins", "frozenset"), ("collections", "OrderedDict")}:
            return super().find_class(module, name)
        raise DataError(f"the pickle holds {module}.{name}: refused; only dicts, lists, sets and texts are read")


def _restricted_load(file: Any) -> Any:
    return _Restricted(file).load()


def read_plain_pickle(path: Path) -> Any:
    """Read a pickle of dicts, lists, sets and texts. Raises DataError for anything else: nothing in it is run."""
    try:
        with path.open("rb") as file:
            return _restricted_load(file)
    except DataError as error:
        error.add_note(f"in {path}")
        raise
    except Exception as error:
        raise DataError(f"{path} cannot be read as a pickle: {error}. Is it a saved error page?") from error


def dense(x: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A float32 array of a sparse or dense matrix."""
    return np.asarray(x.toarray() if sparse.issparse(x) else x, dtype=np.float32)
