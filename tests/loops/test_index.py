"""Where the lines of a journal are: canonical and other lines, damage, and lines that lie about their case."""

import json
from pathlib import Path

import pytest

from evidence.errors import ArchiveError
from evidence.values import canonical_json
from loops.index import LineIndex, Place, canonical_line


def closed(case: str, repeat: int) -> dict:
    return {"event": "closed", "case": case, "repeat": repeat, "outcome": "complete", "measured": []}


def index(tmp_path: Path, *lines: str) -> LineIndex:
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return LineIndex(path, ("a", "b", "ü"))


def read(found: LineIndex, case: str, repeat: int | None) -> list[int]:
    place = Place(case, repeat)
    with found.open() as reader:
        lines = list(reader.lines(place))
        assert reader.text(place) == b"".join(line + b"\n" for _, line in lines)
    return [number for number, _ in lines]


def test_lines_are_found_by_case_and_repeat_however_they_were_written(tmp_path: Path) -> None:
    own, other = canonical_json(closed("a", 1)), json.dumps(closed("a", 1))
    opened = canonical_json({"adapter_inputs": "", "baselines": {}, "case": {"id": "b"}, "event": "opened"})
    found = index(tmp_path, own, canonical_json(closed("ü", 0)), "", other, opened, canonical_json(closed("a", 10)))
    assert [read(found, *place) for place in (("a", 1), ("a", 10), ("ü", 0), ("b", None))] == [[1, 4], [6], [2], [5]]
    assert read(found, "b", 0) == []
    assert found.damaged == []


@pytest.mark.parametrize("between", ["", " ", "\t", "\r"])
def test_a_lost_newline_damages_its_line_and_no_other_whatever_else_is_blank(tmp_path: Path, between: str) -> None:
    """As many objects as lines: a blank line must not stand in for one that holds two."""
    one, two, three = (canonical_json(closed("a", repeat)) for repeat in range(3))
    for lines, damaged in (((one + between + two, "", three), [1]), ((three, one + between + two, three, ""), [2])):
        found = index(tmp_path, *lines)
        assert found.damaged == damaged
        assert read(found, "a", 2) == [n for n, line in enumerate(lines, start=1) if line == three]
        assert read(found, "a", 0) == read(found, "a", 1) == []


def test_a_name_inside_a_text_is_no_name(tmp_path: Path) -> None:
    answers = [{"reason": '"case":"b","repeat":7,'}]
    line = canonical_json({"answers": answers, "case": "a", "proposal": '"repeat":9,', "repeat": 2})
    assert read(index(tmp_path, line), "a", 2) == [1]


def test_damaged_lines_are_counted_and_an_unknown_case_is_an_error(tmp_path: Path) -> None:
    own = canonical_json(closed("a", 0))
    torn_in_the_middle = own.replace('"outcome":', "").replace('"a"', '"nobody"')
    found = index(tmp_path, own[:20], own, torn_in_the_middle, "[]")
    assert found.damaged == [1, 3, 4]
    assert read(found, "a", 0) == [2]
    with pytest.raises(ArchiveError, match="lines of case 'nobody', which run.json does not have"):
        index(tmp_path, canonical_json(closed("nobody", 0)))
    with pytest.raises(ArchiveError, match="line 1: expected a case and a repeat, got 'a' and None"):
        index(tmp_path, json.dumps({"case": "a"}))


def test_the_canonical_text_of_a_line() -> None:
    own = canonical_json(closed("a", 0)).encode()
    assert canonical_line(own + b"\n") == own
    assert canonical_line(json.dumps(closed("a", 0)).encode()) == own
    assert canonical_line(own[:-9] + b"}\n") is None
