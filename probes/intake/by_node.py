"""A file that no reader knows as it stands, cut by the node in front of every line: the parts that are a tool's output.

Shape    items_by_node(item, text) -> (node, Item), [] where no part is known
Errors   none
"""

from __future__ import annotations

from probes.intake.first_words import parts_by_first_word
from probes.intake.items import Item
from probes.intake.kinds import Known, kind_of
from probes.intake.names import stem


def items_by_node(item: Item, text: str) -> list[tuple[str, Item]]:
    found = []
    for part in parts_by_first_word(text):
        node = part.nodes[0]
        inside = item.inside.parent / node / f"{stem(item.name)}.txt"
        mine = Item(f"{item.ref}: {node}"[:1000], inside, part.text.encode("utf-8", "replace"), mtime=item.mtime)
        known = kind_of(mine)
        if isinstance(known, Known) and known.tool is not None:
            found.append((node, mine))
    return found
