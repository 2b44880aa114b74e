"""Other benchmarks' files: the real ones where they are here, made-up ones for what they do not show."""

from __future__ import annotations

import base64
import json
from collections import Counter

import pytest

from benchmarks.convert import convert
from benchmarks.items import load_item_set, write_items
from benchmarks.options import split_options
from evidence.errors import ConfigError, DataError
from tests.benchmarks.conftest import png

# --- options in one text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("A. one. B. two. C. three. D. four.", ("one.", "two.", "three.", "four.")),
        ("A. one<br>B. two<BR/>C. three<br />D. four", ("one", "two", "three", "four")),
        ("[A. 5.9% B. 41.9% C. 55.4% D. 2.7% E. None]", ("5.9%", "41.9%", "55.4%", "2.7%", "None")),
        ("A. x \nB. y \nC. z \nD. w", ("x", "y", "z", "w")),
        ("A. x.B. y.C. z.D. w.", ("x.", "y.", "z.", "w.")),
        ("A) x B) Y C) Z D) W", ("x", "Y", "Z", "W")),
        ("A. E. coli grow. B. In C. elegans C. Both D. None", ("E. coli grow.", "In C. elegans", "Both", "None")),
        ("A. hPDC. B. hBMC. C. a. D. b.", ("hPDC.", "hBMC.", "a.", "b.")),
    ],
)
def test_split(text, options):
    assert split_options(text) == options


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no labels at all",
        "A. one B. two",
        "B. two C. three D. four E. five",
        "A. x B. y C. z D. vitamin E. low E. Yes",
        "A. x. B. y. C. z. D. the e of E. hum",
        "A. a\nB. b\nC. c\nD. d\nE. e\nF. f",
        "A. x. B. B. y. C. z. C. z. D. w.",
        "A. " + "B. x C. x D. x E. x " * 400,
    ],
)
def test_what_cannot_be_split_for_sure_is_refused(text):
    with pytest.raises(ValueError, match="options"):
        split_options(text)


# --- SPUR --------------------------------------------------------------------------------------------------------


def test_the_24_spur_items_are_split_and_mapped(static_data):
    found = convert("spur", static_data / "spur", without_images=True)
    assert found.problems == ()
    counts = Counter((item.stage, item.task) for item in found.items)
    assert counts == {
        ("perception", "NP"): 4,
        ("perception", "MP"): 2,
        ("perception", "IL"): 2,
        ("understanding", "TA"): 7,
        ("understanding", "HI"): 1,
        ("reasoning", "Qual"): 3,
        ("reasoning", "Quant"): 5,
    }
    by_id = {item.id: item for item in found.items}
    assert len(by_id) == 24
    same = [item for item in found.items if item.id.endswith("-2010027917_6_1")]
    assert {item.stage for item in same} == {"perception", "understanding", "reasoning"}
    assert {item.source for item in same} == {"2010027917_6"}
    assert by_id["reason-00007-2010065124_3_1"].options[1:4] == ("41.9%", "55.4%", "2.7%")


def test_spur_without_its_images_says_which_are_missing(static_data):
    found = convert("spur", static_data / "spur")
    assert found.items == ()
    assert len(found.problems) == 24
    assert "multi-panel_qa_pair.sample.json row 1: image 'origin_images/2010027917_6.png'" in found.problems[0]


def _spur(**changes):
    return {
        "QUESTION_INDEX": "77_3_12",
        "QUESTION_TAG": "[Single-image - Numerical]",
        "QUESTION": "Which?",
        "OPTION": "A. one. B. two. C. three. D. four.",
        "ANSWER": "C",
        "EVIDENCE": "because",
        **changes,
    }


@pytest.mark.parametrize(
    ("file", "images"), [("single_qa_pair", "oringin_images"), ("single-panel_qa_pair", "origin_images")]
)
def test_spur_in_both_layouts(tmp_path, file, images):
    (tmp_path / f"{file}.json").write_text(json.dumps([_spur(), _spur()]))
    (tmp_path / images).mkdir()
    (tmp_path / images / "77_3.jpg").write_bytes(png())
    found = convert("spur", tmp_path)
    assert found.problems == ()
    assert [item.images for item in found.items] == [(f"{images}/77_3.jpg",)] * 2
    assert [item.answer for item in found.items] == ["C", "C"]


def test_spur_rows_that_cannot_be_used_are_reported_together(tmp_path):
    rows = [
        _spur(OPTION="A. x B. y"),
        _spur(QUESTION_TAG="[Single-image - Emotional]"),
        _spur(ANSWER="E"),
        _spur(QUESTION_INDEX="77"),
        "text",
        _spur(),
    ]
    (tmp_path / "single_qa_pair.json").write_text(json.dumps(rows))
    found = convert("spur", tmp_path, without_images=True)
    assert len(found.items) == 1
    assert [p.split(":")[0] for p in found.problems] == [f"single_qa_pair.json row {n}" for n in range(1, 6)]
    assert "cannot be split" in found.problems[0]
    assert "names no single task" in found.problems[1]
    assert "answer 'E' is not the letter of an option (expected one of ABCD)" in found.problems[2]


def test_two_spur_files_of_one_kind_are_refused(tmp_path):
    for name in ("single_qa_pair.json", "single-panel_qa_pair.json"):
        (tmp_path / name).write_text("[]")
    with pytest.raises(DataError, match="one SPUR file of a kind"):
        convert("spur", tmp_path)


# --- the other forms ---------------------------------------------------------------------------------------------


def test_the_25_figqa_questions(static_data, tmp_path):
    found = convert("figqa", static_data / "figqa" / "items.jsonl")
    assert found.problems == ()
    assert len(found.items) == 25
    assert len({item.images for item in found.items}) == 15
    assert len({item.source for item in found.items}) == 12
    assert all("canary" in item.canary for item in found.items)
    assert all(any(o.startswith("Insufficient") for o in item.options) for item in found.items)
    assert len({item.answer for item in found.items}) > 3
    first = found.items[0]
    assert first.options[first.key] == "-70"
    out = tmp_path / "figqa.jsonl"
    out.write_bytes(write_items(found.items))
    assert load_item_set(out, static_data / "figqa").items == found.items


def test_omnivcbench_items_through_a_mapping_file(static_data, tmp_path):
    mapping = tmp_path / "map.yaml"
    mapping.write_text(
        "version: 1\n"
        "fields: {id: case, question: question, answer: key, reference: reference_answer, level: level, source: doi}\n"
        "options: options\n"
        'values: {level: {"1": L1, "2": L2, "3": L3}}\n'
    )
    found = convert("mapped", static_data / "omnivcbench_case_items.json", mapping=mapping, without_images=True)
    assert list(found.problems) == ["omnivcbench_case_items.json row 1: question (question) is missing"]
    assert [(i.id, i.level, i.answer) for i in found.items] == [
        ("B", "L1", "B"),
        ("C", "L1", "E"),
        ("F", "L2", "C"),
        ("I", "L3", "D"),
    ]
    assert all(item.options[item.key] == item.reference for item in found.items)


def test_a_mapping_reads_inner_keys_option_keys_and_answers_in_words(tmp_path):
    rows = [{"Question": "Which?", "A": "x", "B": "y", "meta": {"doi": "https://doi.org/10.1/ABC"}, "right": "y"}]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    mapping = tmp_path / "map.yaml"
    mapping.write_text(
        "version: 1\nfields: {question: Question, answer: right, source: meta.doi}\noptions: [A, B]\nanswer: text\n"
    )
    (item,) = convert("mapped", tmp_path / "rows.json", mapping=mapping).items
    assert (item.id, item.answer, item.source) == ("row-00001", "B", "10.1/abc")


def test_a_mapping_file_is_closed(tmp_path):
    mapping = tmp_path / "map.yaml"
    mapping.write_text("version: 1\nfields: {question: Q}\noption: [A]\n")
    (tmp_path / "rows.json").write_text("[]")
    with pytest.raises(ConfigError, match="unknown key 'option'"):
        convert("mapped", tmp_path / "rows.json", mapping=mapping)


def test_vlmevalkit_tables_with_images_inside(tmp_path):
    image, other = (base64.b64encode(png(90, 80, shade)).decode() for shade in (1, 2))
    table = tmp_path / "bench.tsv"
    table.write_text(
        "index\timage\tquestion\thint\tA\tB\tC\tanswer\tcategory\n"
        f"1\t{image}\tWhich?\tLook.\tx\ty\t\tB\tcells\n"
        f'2\t1\t"Which ""one""?"\t\tx\ty\tz\tC\tcells\n'
        f"3\t['{image}', '{other}']\tWhich?\t\tx\ty\t\tA\tcells\n"
        f"4\t9\tWhich?\t\tx\t\tz\tA\tcells\n"
        f"1\t1\tWhich?\t\tx\ty\t\tA\tcells\n"
    )
    kept: dict[str, bytes] = {}
    found = convert("vlmeval", table, keep=kept.__setitem__)
    one, two, three, *_ = found.items
    assert (one.question, one.options, one.answer) == ("Look.\nWhich?", ("x", "y"), "B")
    assert one.images == two.images == three.images[:1]
    assert two.question == 'Which "one"?'
    assert set(kept) == set(three.images)
    assert found.problems == (
        "bench.tsv row 4: an option is empty and a later one is not",
        "bench.tsv row 4: image '9' is not the index of an earlier row with an image",
        "id '1' is used on bench.tsv row 1, bench.tsv row 5",
    )


def test_microvqa_rows(tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    good = {
        "key_question": 5,
        "question": "What is it?",
        "choices": ["x", "y", "z"],
        "correct_index": 2,
        "task": 1,
        "images_list": ["a.png"],
    }
    rows = [good, {**good, "key_question": 6, "correct_index": 3}, {**good, "key_question": 7, "correct_index": True}]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = convert("microvqa", tmp_path / "m.jsonl")
    assert [(i.id, i.answer, i.task) for i in found.items] == [("5", "C", "1")]
    assert len(found.problems) == 2
    assert "correct_index 3" in found.problems[0]


def test_an_unknown_form_suggests(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'figqa'"):
        convert("figq", tmp_path)
