"""Network policies of Kubernetes: `kubectl get networkpolicy -o yaml` or -o json, and `kubectl describe`; and security
groups, as `aws ec2 describe-security-groups` prints them.

Only whether pods let in all, or some ports: which pods a selector means is not evaluated. A policy that lets in any
port settles that nothing is blocked; policies add up, what none of them lets in is dropped.

Source   Kubernetes, concepts: Network Policies; kubectl describe of 1.30
Shape    Settings.filters: the rule of all policies together
Errors   ParseError where there is none
"""

from __future__ import annotations

import json
import re

from probes.catalog.network.net_facts import FilterRule, Settings
from probes.core import clean
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse
from probes.intake.tools.host.limits import quiet

_KIND = re.compile(
    r"^[ \t]{0,12}[-\"{]{0,2}\s{0,8}\"?kind\"?:\s{1,4}\"?(?:Cilium|Global)?(?:Clusterwide)?NetworkPolicy\"?,?\s{0,4}$",
    re.M,
)
_DESCRIBED = re.compile(r"^Spec:\n  PodSelector: ", re.M)
_PORT = re.compile(r"\"?\bport\"?:\s{1,4}\"?(\d{1,5})\b|^\s{4,8}To Port: (\d{1,5})/TCP", re.M)
_ALL = re.compile(
    r"^([ \t]{0,12})ingress:\n\s{0,12}- \{\}|\"ingress\":\s{0,40}\[\s{0,80}\{\s{0,40}\}"
    r"|^ {4}To Port: <any> \(traffic allowed to all ports\)",
    re.M,
)


def fits(head: str, name: str) -> bool:
    if '"IpPermissions"' in head and '"SecurityGroups"' in head:
        return True
    return bool(_KIND.search(head) or (_DESCRIBED.search(head) and "ingress traffic" in head))


def read(text: str) -> Settings:
    text = text[:1_048_576]
    if not fits(text, ""):
        raise refuse("a network policy", text)
    if '"SecurityGroups"' in text:
        return _groups(text)
    ports = sorted({int(one[0] or one[1]) for one in _PORT.findall(text) if int(one[0] or one[1]) < 65_536})[:64]
    if _ALL.search(text) or _rule_without_ports(text) or not re.search(r"[Ii]ngress", text):
        return Settings(filters_told=True)
    says = (
        f"network policies let in only ports {', '.join(map(str, ports[:12]))}"
        if ports
        else "network policies let in nothing"
    )
    return Settings(filters=(FilterRule("INPUT", clean(says), "DROP", policy=True),), filters_told=True)


def _groups(text: str) -> Settings:
    """What security groups let in; "-1" is all protocols. What goes out is let out unless somebody took that away."""
    try:
        groups = json.loads(text)["SecurityGroups"]
        rules = [rule for group in groups for rule in group.get("IpPermissions", ())][:10_000]
        spans = [(int(rule.get("FromPort", 0)), int(rule.get("ToPort", 65_535))) for rule in rules]
        every = any(rule.get("IpProtocol") == "-1" for rule in rules)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise refuse("security groups as JSON", text) from None
    if every or any(last - first > 30_000 for first, last in spans):
        return Settings(filters_told=True)
    only = ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in spans[:12]) or "none"
    rule = FilterRule("INPUT", f"security groups let in only ports {only}", "DROP", policy=True)
    return Settings(filters=(rule,), filters_told=True)


def _rule_without_ports(text: str) -> bool:
    """A rule below `ingress:` in YAML that says who may come and no port."""
    lines = text.split("\n")[:20_000]
    for at, line in enumerate(lines):
        if line.strip() != "ingress:":
            continue
        depth = len(line) - len(line.lstrip())
        rules: list[str] = []
        for inner in lines[at + 1 : at + 400]:
            indent = len(inner) - len(inner.lstrip())
            item = inner.lstrip().startswith("- ")
            if inner.strip() and (indent < depth or (indent == depth and not item)):
                break
            first = not rules or indent == len(rules[0]) - len(rules[0].lstrip())
            if item and first:
                rules.append(inner + "\n")
            elif rules:
                rules[-1] += inner + "\n"
        if any("ports:" not in rule for rule in rules):
            return True
    return False


TOOL = Tool("network policy", "host.settings", fits, read, quiet)
