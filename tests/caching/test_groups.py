"""Groups of RFC 9875: lists of strings."""

from __future__ import annotations

import pytest

from protogate.caching.groups import groups


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([b'"a"'], {"a"}),
        ([b'"a", "b"'], {"a", "b"}),
        ([b'"a"', b'"b"'], {"a", "b"}),
        ([b'"a, b";x=1;y="z" , "c\\"d"'], {"a, b", 'c"d'}),
        ([], set()),
        ([b"a"], set()),
        ([b'"a",'], set()),
        ([b'"a" "b"'], set()),
        ([b'"a'], set()),
        ([b'"\xe4"'], set()),
        ([b'"' + b"x" * 65 + b'", "y"'], {"y"}),
    ],
)
def test_groups(values, found):
    assert groups(values) == found


def test_there_are_so_many_at_most():
    assert len(groups([", ".join(f'"{number}"' for number in range(100)).encode()])) == 32
