"""Quotas of control groups, told in one look, in two, or in several files.

Shape    together(quotas) -> one of each control group, with what happened between the looks
"""

from __future__ import annotations

from dataclasses import replace

from probes.catalog.host.load_facts import Quota


def together(quotas: list[tuple[Quota, str]]) -> list[tuple[Quota, str]]:
    """Quotas told twice: what happened between the two looks. A limit and its counts may come in two files."""
    grouped: dict[str, list[tuple[Quota, str]]] = {}
    for quota, ref in quotas:
        grouped.setdefault(quota.cgroup, []).append((quota, ref))
    found = []
    for some in grouped.values():
        quota, ref = some[-1]
        quota = replace(
            quota,
            cpus=next((one.cpus for one, _ in reversed(some) if one.cpus), 0.0),
            using=next((one.using for one, _ in reversed(some) if one.using is not None), None),
        )
        some = [(_joined(one, [other for other, _ in some]), ref) for one, ref in some]
        counted = [one for one, _ in some if one.total_periods is not None and one.total_throttled is not None]
        if quota.periods is None and (told := next((one for one, _ in some if one.periods), None)) is not None:
            quota = replace(
                quota, periods=told.periods, throttled=told.throttled, throttled_percent=told.throttled_percent
            )
        if quota.periods is None and len(counted) > 1:
            quota = _between(quota, counted[0], counted[-1])
        if quota.total_periods is None and counted:
            quota = replace(quota, total_periods=counted[-1].total_periods, total_throttled=counted[-1].total_throttled)
        found.append((quota, ref))
    return found


def _joined(one: Quota, others: list[Quota]) -> Quota:
    """A series a file, as monitoring gives them: the periods come from one file and the throttled ones from another."""
    if (one.total_periods is None) == (one.total_throttled is None):
        return one
    missing = "total_periods" if one.total_periods is None else "total_throttled"
    told = [value for other in others if (value := getattr(other, missing)) is not None]
    return replace(one, **{missing: told[0]}) if len(told) == 1 else one


def _between(quota: Quota, first: Quota, last: Quota) -> Quota:
    periods = (last.total_periods or 0) - (first.total_periods or 0)
    throttled = (last.total_throttled or 0) - (first.total_throttled or 0)
    if periods <= 0 or throttled < 0:
        return quota
    return replace(quota, periods=periods, throttled=throttled, throttled_percent=round(100 * throttled / periods, 1))
