import pytest

from benchmarks.items import load_items
from evidence.errors import DataError

GOOD = '{"id": "q1", "question": "Which?", "options": ["x", "y"], "answer": "B"}'


def test_e07_repeated_id_names_both_lines(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text(
        '{"id":"q7","question":"...","answer":"A"}\n{"id":"q7","question":"other ...","answer":"C"}\n', encoding="utf-8"
    )
    with pytest.raises(DataError, match="id 'q7' is used on lines 1, 2"):
        load_items(path)


def test_e07_every_problem_of_a_file_is_listed_with_its_line(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text(
        "\n".join(
            [
                GOOD,
                '{"id": "q2", "question": "?", "options": ["x", "y"], "answer": "C"}',
                '{"id": "q3", "question": "?", "options": ["same", "same "], "answer": "A"}',
                '{"id": "q4", "question": "?", "options": ["x", "y"]}',
                '{"id": "q5"',
            ]
        )
    )
    with pytest.raises(DataError) as caught:
        load_items(path)
    message = str(caught.value)
    assert "line 2: answer 'C' is not the letter of an option (expected one of AB)" in message
    assert "line 3: two options have the same text" in message
    assert "line 4: answer: Field required" in message
    assert "line 5:" in message
    assert "4 problem(s)" in message


def test_good_items_keep_their_order(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text(GOOD + "\n\n" + GOOD.replace("q1", "q0") + "\n")
    assert [item.id for item in load_items(path)] == ["q1", "q0"]


def test_an_empty_file_is_refused(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text("\n")
    with pytest.raises(DataError, match="no item"):
        load_items(path)


def test_a_file_that_is_not_utf8_names_the_line(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_bytes(b'\n{"id": "q\xe9"}\n')
    with pytest.raises(DataError, match="line 2 is not UTF-8 text"):
        load_items(path)
