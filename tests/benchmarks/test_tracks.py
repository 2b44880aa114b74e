"""What is shown of an item, the text-only filter, and the odd-one-out audit."""

from __future__ import annotations

import pytest

from benchmarks.items import Item, build_item
from benchmarks.tracks import odd_ones, polarity, shortcuts, show, unfit
from evidence.errors import DataError
from tests.benchmarks.conftest import plain_item


def item(**changes) -> Item:
    made, problems = build_item(plain_item(1, **changes))
    assert made is not None, problems
    return made


def test_options_as_given_and_shuffled_by_seed_item_and_repeat():
    one = item()
    assert show(one, "mcq", "given", 1, 0).order == (0, 1, 2, 3)
    orders = [show(one, "mcq", "shuffled", 1, repeat).order for repeat in range(10)]
    assert len(set(orders)) > 5
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert orders == [show(one, "mcq", "shuffled", 1, repeat).order for repeat in range(10)]
    assert orders != [show(one, "mcq", "shuffled", 2, repeat).order for repeat in range(10)]


def test_a_letter_leads_back_to_its_option():
    one = item()
    shown = show(one, "mcq", "shuffled", 3, 0)
    assert [shown.chosen(letter) for letter in "ABCD"] == list(shown.order)
    assert [one.options[n] for n in shown.order] == list(shown.texts(one).values())
    assert shown.chosen(None) is None


def test_items_that_do_not_fit_a_track_are_named():
    bare = item(options=None, answer="words", images=None)
    assert unfit([bare], "mcq") == ["item 'q1' has no options", "item 'q1' has no figure"]
    assert unfit([bare], "open") == ["item 'q1' has no figure"]
    assert unfit([item(images=None)], "no_image") == []


def _rows(**right: int):
    return [{"item": name, "right": n < k} for name, k in right.items() for n in range(10)]


def test_five_right_of_ten_without_the_figure_discards():
    found = shortcuts(_rows(a=4, b=5, c=10))
    assert [(s.item, s.n_right, s.discard) for s in found] == [("a", 4, False), ("b", 5, True), ("c", 10, True)]


def test_the_filter_refuses_fewer_answers():
    with pytest.raises(DataError, match="repeats: 10"):
        shortcuts(_rows(a=4)[:-1])


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("Expression increases in the treated cells", "up"),
        ("A lower rate was seen", "down"),
        ("The level remains similar", "same"),
        ("It does not increase", "same"),
        ("No significant change", "same"),
        ("First a rise, then a decrease", "mixed"),
        ("The kinase is phosphorylated", "none"),
    ],
)
def test_polarity(text, side):
    assert polarity(text) == side


def test_only_a_key_that_stands_alone_is_an_odd_one():
    alone = item(options=["a rises", "b decreases", "c decreases", "d decreases"], answer="A")
    other = item(options=["a rises", "b decreases", "c decreases", "d decreases"], answer="B")
    vague = item(options=["a rises", "b decreases", "c decreases", "d is red"], answer="A")
    assert [(o.key, o.others) for o in odd_ones([alone, other, vague])] == [("up", "down")]
