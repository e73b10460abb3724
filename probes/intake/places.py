"""Of which node is each file: by folders, by what its content says, by names, by the pod that it is called after.

Content counts before names, and the full name of a node before a short one.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from probes.catalog._cluster_facts import Cluster
from probes.intake.brought import Brought
from probes.intake.clues import counted_nodes, of_many, told_of
from probes.intake.hosts import called, node_of_name, same_as, shorter_in
from probes.intake.names import is_host, is_other, nodes_of, stem
from probes.intake.neighbours import beside_known, of_fabric, of_launches, of_logs, of_names, of_repeated, of_twins


class Places:
    """Built once from everything that was read."""

    def __init__(self, brought: Brought) -> None:
        self.brought = brought
        hosts = {host for log in brought.logs for host in log.hosts.values()}
        hosts |= {host for log in brought.logs for host in log.named}
        hosts |= {one.host for one in brought.nodes if one.host}
        facts = [one.reading.facts for one in brought.nodes]
        clusters = [one for one in facts if isinstance(one, Cluster)]
        self.pods = {pod.name: pod.node for one in clusters for pod in one.pods if pod.node}
        self.told = {folder: min(said) for folder, said in brought.told.items() if len(said) == 1}
        hosts |= set(self.told.values())
        hosts |= brought.named
        self.content = content = set(hosts)
        hosts |= of_names([one.inside for one in brought.nodes])
        hosts |= of_logs(log.inside for log in brought.logs)
        hosts |= of_repeated([one.inside for one in brought.nodes])
        hosts |= of_fabric(brought.nodes, brought.folders)
        whole = [one.inside.parent for one in brought.nodes] + [p.inside.parent for p in brought.processes if p.table]
        # A folder of what is of one node, and a log beside it that is called so, are of that node.
        folders = {one.name for one in whole if is_host(one.name) and not is_other(one.name) and one.name[-1].isdigit()}
        hosts |= beside_known((log.inside for log in brought.logs), hosts | folders)
        hosts = {one for one in hosts if one in content or not same_as(one, content)}
        tables = (one.inside for one in brought.processes if one.table)
        twins = of_twins([*(one.inside for one in brought.nodes), *tables])
        self.nodes = nodes_of(brought.folders, hosts, whole) | twins
        self.counted = counted_nodes(brought.logs, self.nodes)
        self.launches = of_launches(brought.insides)
        self.nodes |= set(self.launches)
        self.nodes -= of_many(one.inside for one in brought.nodes)
        self.called = {one: same_as(one.name, content) or called(one.name, hosts) for one in self.nodes}
        self.hosts = hosts | set(self.called.values())
        there: dict[PurePosixPath, set[str]] = {}
        for one in brought.nodes:
            if name := one.host or node_of_name(one.inside, ()):
                there.setdefault(one.inside.parent, set()).add(name)
        told = {one.inside.parent for one in brought.nodes if one.host}  # by its content, not by a name alone
        self.alone = {folder: names.pop() for folder, names in there.items() if len(names) == 1 and folder in told}
        self.told = told_of(brought.told, self.hosts)
        self._named_by_content(hosts)
        self.hosts |= set(self.told.values())

    def _named_by_content(self, hosts: set[str]) -> None:
        """What a file with several outputs is called may be a ticket, or hold the node's name among other words: what
        its outputs say of their node counts before it."""
        for folder in self.brought.pasted & self.nodes:
            name = self.alone.get(folder) or node_of_name(PurePosixPath(folder.name), hosts)
            if name and name != folder.name:
                self.told[folder] = name
                self.hosts.discard(folder.name)

    def folder_node(self, inside: PurePosixPath) -> str:
        """The node by the folder, "" where folders are not nodes."""
        own = self._own_folder(inside)
        return own or next((self.told[folder] for folder in inside.parents if folder in self.told), "")

    def _own_folder(self, inside: PurePosixPath) -> str:
        """The node whose folder a file is in."""
        folder = next((one for one in inside.parents if one in self.nodes), None)
        return "" if folder is None else self.told.get(folder) or self.called[folder]

    def _pods_node(self, inside: PurePosixPath) -> str:
        """The node on which the pod runs that a file or its folder is called after."""
        words = (stem(inside.name), *re.split(r"[._]", stem(inside.name)), *(one.name for one in inside.parents))
        return next((self.pods[word] for word in words if word in self.pods), "") if self.pods else ""

    def name_node(self, inside: PurePosixPath) -> str:
        """The node that a file's own name says, "" for none."""
        found = node_of_name(inside, self.hosts)
        return found if found in self.hosts else shorter_in(inside, self.content) or found

    def beside(self, inside: PurePosixPath) -> str:
        """The node of what lies in the same folder, where tools there name one and the same."""
        return self.alone.get(inside.parent, "")

    def _near(self, inside: PurePosixPath) -> str:
        """The node of a file by its folder or its own name."""
        return self.folder_node(inside) or self.name_node(inside)
