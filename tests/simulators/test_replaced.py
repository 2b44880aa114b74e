import pytest

from simulators.replaced import replaced


class Upstream:
    number = 1

    def name(self):
        return "theirs"


def test_values_are_others_inside_and_the_same_after():
    before = Upstream.name
    with replaced(Upstream, number=2, name=lambda _: "ours"):
        assert (Upstream.number, Upstream().name()) == (2, "ours")
    assert (Upstream.number, Upstream.name) == (1, before)


def test_what_fails_inside_leaves_them_the_same_too():
    with pytest.raises(ZeroDivisionError), replaced(Upstream, number=2):
        1 // 0  # noqa: B018 - it fails
    assert Upstream.number == 1


def test_an_attribute_that_upstream_no_longer_has_is_an_error():
    with pytest.raises(AttributeError, match="gone"), replaced(Upstream, gone=1):
        pass
