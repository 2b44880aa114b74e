import pytest

from simulators.replaced import replaced


class Upstream:
    number = 1

    def name(self):
        return "theirs"


def test_values_are_others_inside_and_the_same_after_even_when_it_fails():
    before = Upstream.name
    with pytest.raises(RuntimeError), replaced(Upstream, number=2, name=lambda _: "ours"):
        assert (Upstream.number, Upstream().name()) == (2, "ours")
        raise RuntimeError
    assert (Upstream.number, Upstream.name) == (1, before)


def test_an_attribute_that_upstream_no_longer_has_is_an_error():
    with pytest.raises(AttributeError, match="gone"), replaced(Upstream, gone=1):
        pass
