"""Rows of CSV; a line that is none, such as one with a lone carriage return or an open quote, is passed over."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator


def csv_rows(lines: Iterable[str], mark: str) -> Iterator[list[str]]:
    rows = csv.reader(lines, delimiter=mark)
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error:
            continue
