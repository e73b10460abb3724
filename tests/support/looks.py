"""The four ways in which a page is looked at: two sizes, two colour schemes."""

from __future__ import annotations

import pytest

SIZES = {"desk": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
# Both sizes and both schemes are seen by every run; the other two of the four by `make long`.
at_each_look = pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param("desk", "dark"),
        pytest.param("phone", "light"),
        pytest.param("desk", "light", marks=pytest.mark.long),
        pytest.param("phone", "dark", marks=pytest.mark.long),
    ],
)
