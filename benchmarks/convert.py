"""Other benchmarks' files as items: one reader a form, every problem of every row reported together.

Nothing is guessed: a row whose options cannot be split, whose key is no option, whose tag is unknown or whose image is
not there is a problem, not an item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.convert_json import read_figqa, read_microvqa
from benchmarks.convert_mapped import read_mapped
from benchmarks.convert_spur import read_spur
from benchmarks.convert_tsv import read_vlmeval
from benchmarks.images import check_images, look_at
from benchmarks.items import Item, Problem, build_item, repeated_ids
from benchmarks.rows import Reader, Row
from evidence.errors import ConfigError, DataError, did_you_mean

READERS: Mapping[str, Reader] = {
    "figqa": read_figqa,
    "microvqa": read_microvqa,
    "spur": read_spur,
    "vlmeval": read_vlmeval,
}
FORMS = (*READERS, "mapped")


class Converted(NamedTuple):
    """Good items in file order, and everything that is wrong with the other rows."""

    items: tuple[Item, ...]
    problems: tuple[str, ...]


def convert(
    form: str,
    source: Path,
    *,
    images: Path | None = None,
    mapping: Path | None = None,
    without_images: bool = False,
    keep: Callable[[str, bytes], None] = lambda name, data: None,
) -> Converted:
    """Read a source in a known form. `keep` gets every image that comes inside a row, under its item's path for it.

    `images` is the folder of the images, by default the source's own; `without_images` leaves them out of the items.
    Raises DataError where the source cannot be read at all, ConfigError for an unknown form or a bad mapping.
    """
    if form not in FORMS:
        raise ConfigError(f"no benchmark form named {form!r}.{did_you_mean(form, FORMS)}")
    if (form == "mapped") != (mapping is not None):
        raise ConfigError("a mapping file goes with the form 'mapped' and with no other")
    folder = images or (source if source.is_dir() else source.parent)
    rows = read_mapped(source, mapping) if mapping is not None else READERS[form](source, folder)
    return _collect(rows, None if without_images else folder, keep)


def _collect(rows: Iterator[Row], folder: Path | None, keep: Callable[[str, bytes], None]) -> Converted:
    good: list[tuple[Row, Item]] = []
    problems: list[Problem] = []
    ids: list[tuple[str, str]] = []
    embedded: set[str] = set()
    for row in rows:
        fields = {**row.fields, "images": []} if folder is None else row.fields
        item, wrong = build_item(fields)
        if fields.get("id"):
            ids.append((str(fields["id"]), f"{row.file} row {row.row}"))
        said = list(row.problems) or wrong
        if folder is not None:
            said += _keep_embedded(row, keep)
        problems += [Problem(row.file, row.row, words) for words in said]
        if item is not None and not said:
            good.append((row._replace(embedded={}), item))
            embedded.update(row.embedded)
    if folder is not None:
        files = ((n, [i for i in item.images if i not in embedded]) for n, (_, item) in enumerate(good))
        _, missing = check_images(folder, files)
        problems += [Problem(good[n][0].file, good[n][0].row, words) for n, words in missing]
        good = [pair for n, pair in enumerate(good) if n not in dict(missing)]
    listed = [str(problem) for problem in sorted(problems, key=lambda p: (p.file, p.row))]
    return Converted(tuple(item for _, item in good), (*listed, *repeated_ids(ids)))


def _keep_embedded(row: Row, keep: Callable[[str, bytes], None]) -> list[str]:
    problems = []
    for name, data in row.embedded.items():
        try:
            look_at(data, name)
            keep(name, data)
        except DataError as error:
            problems.append(str(error))
    return problems
