"""The ports that must be there, each with the other end of its cable where somebody has seen it.

Form of the stored body: {"form": 1, "columns": [...], "ports": [[...], ...]}, one row per port.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

FORM = 1
# Mellanox switches call themselves MF0;<host name>:<model>/<module>/U1: only the first and the third tell them apart.
_MELLANOX = re.compile(r"MF\d;(.{1,80}):[A-Za-z0-9-]{1,20}((?:/[A-Z]\d{1,3})*?)(?:/U1)?")


class FormError(ValueError):
    """The stored body has another form than this version reads."""


def switch_name(name: str, guid: str) -> str:
    """What people call a switch: its name without the maker's trimmings, else its GUID."""
    known = _MELLANOX.fullmatch(name)
    return (known[1] + known[2] if known else name) or f"switch {guid}"


@dataclass(frozen=True, slots=True)
class ExpectedPort:
    """One port. `rail`: place of its adapter among those of the same kind on its node, from 0. `guid`: node GUID of the
    adapter, 16 hexadecimal digits; "" and None: not known. `leaf`: name of the switch at the other end."""

    node: str
    hca: str
    port: int
    rail: int
    guid: str = ""
    rate_gbps: float | None = None
    leaf: str = ""
    leaf_guid: str = ""
    leaf_port: int | None = None

    @property
    def name(self) -> str:
        """gpu-017 mlx5_3, with the port's number where it is not the first."""
        hca = self.hca or f"rail {self.rail}"
        return f"{self.node} {hca}" + (f" port {self.port}" if self.port > 1 else "")

    @property
    def other_end(self) -> str:
        """leaf-03 port 17; "" when nobody has seen it."""
        return f"{self.leaf} port {self.leaf_port}" if self.leaf and self.leaf_port is not None else self.leaf

    @property
    def cable(self) -> str:
        """gpu-017 mlx5_3 → leaf-03 port 17, as far as it is known."""
        return f"{self.name} → {self.other_end}" if self.leaf else self.name


COLUMNS = tuple(field.name for field in dataclasses.fields(ExpectedPort))


@dataclass(frozen=True, slots=True)
class Topology:
    """Expected ports, in the order of nodes and rails."""

    ports: tuple[ExpectedPort, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(port.node for port in self.ports))

    def of(self, nodes: Iterable[str]) -> Topology:
        """Only the ports of these nodes."""
        wanted = set(nodes)
        return Topology(tuple(port for port in self.ports if port.node in wanted))

    def body(self) -> dict[str, Any]:
        """The stored form, plain JSON values."""
        rows = [[getattr(port, name) for name in COLUMNS] for port in self.ports]
        return {"form": FORM, "columns": list(COLUMNS), "ports": rows}

    @classmethod
    def from_body(cls, body: Any) -> Topology:
        """Raises FormError on a form that this version does not read."""
        form = body.get("form") if isinstance(body, dict) else None
        if form != FORM:
            raise FormError(f"the expected topology has form {form}, this version reads {FORM}: learn it again")
        try:
            return cls(tuple(ExpectedPort(**dict(zip(body["columns"], row, strict=True))) for row in body["ports"]))
        except (KeyError, TypeError, ValueError) as error:
            raise FormError(f"the expected topology cannot be read ({error}): learn it again") from None
