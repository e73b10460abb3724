"""Versions of driver, CUDA, NCCL and torch: /proc/driver/nvidia/version, modinfo, dpkg, rpm, pip, nvcc, collect_env.

Source   the tools' own output; torch.utils.collect_env
Shape    facts host.versions
Errors   ParseError when none of the components is in it
"""

from __future__ import annotations

import re

from probes.catalog.host.facts import Versions, version_findings
from probes.core import ParseError, clean
from probes.intake.tools import Tool

_V = r"(\d{1,4}(?:\.\d{1,6}){1,4}(?:[-+][\w.]{1,30})?)"
# component, pattern: each looked for at the start of a line.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (component, re.compile(pattern, re.M))
    for component, pattern in (
        ("driver", r"^NVRM version: [^\n]{0,80}?Kernel Module(?: for \S{1,12})? {1,4}(\d{3}\.\d{1,3}(?:\.\d{1,3})?)"),
        ("driver module file", r"^version: {1,20}(\d{3}\.\d{1,3}(?:\.\d{1,3})?)\s"),
        ("driver library", r"^ii {1,4}libnvidia-compute-\d{3}\S{0,20} {1,40}(?:\d:)?(\d{3}\.\d{1,3}(?:\.\d{1,3})?)"),
        (
            "driver library",
            r"^(?:nvidia-driver-cuda-libs|nvidia-driver-cuda|libnvidia-ml|libcuda1?)-(?:\d:)?(\d{3}\.\d{1,3}(?:\.\d{1,3})?)-",
        ),
        ("driver library", r"NVML library version: (\d{3}\.\d{1,3}(?:\.\d{1,3})?)"),
        ("driver", r"^Nvidia driver version: (\d{3}\.\d{1,3}(?:\.\d{1,3})?)"),
        ("fabric manager", r"^ii {1,4}nvidia-fabricmanager-\d{3} {1,40}(?:\d:)?(\d{3}\.\d{1,3}(?:\.\d{1,3})?)"),
        ("NCCL", r"^ii {1,4}libnccl2 {1,40}" + _V),
        ("NCCL", r"^libnccl-" + _V),
        ("NCCL", r"^(?:\[pip3\] )?nvidia-nccl-cu\d{2}(?:==|\s{1,40})" + _V),
        ("NCCL", r"libnccl\.so\.2 -> \S{0,100}libnccl\.so\." + _V),
        ("torch", r"^(?:\[pip3\] )?torch(?:==|\s{1,60})" + _V),
        ("torch", r"^PyTorch version: " + _V),
        ("NCCL", r"^nccl\s{1,60}" + _V),  # conda list
        ("torch", r"^pytorch\s{1,60}" + _V),
        ("CUDA runtime", r"^(?:cuda-version|cudatoolkit|pytorch-cuda|cuda-runtime)\s{1,60}" + _V),
        ("CUDA", r"^Cuda compilation tools, release [\d.]{3,6}, V" + _V),
        ("CUDA runtime", r"^CUDA used to build PyTorch: " + _V),
        ("cuDNN", r"^(?:\[pip3\] )?nvidia-cudnn-cu\d{2}(?:==|\s{1,40})" + _V),
        ("ROCm", r"^ROCM used to build PyTorch: (\d[\w.-]{2,30})"),
        ("kernel", r"^Linux version (\S{3,60}) "),
    )
)
_KIND = re.compile(r"^NVRM version: NVIDIA UNIX (Open )?[^\n]{0,40}?Kernel Module", re.M)
_SURE = re.compile(
    r"^(?:NVRM version: |filename: {1,20}/lib/modules/\S{1,200}nvidia\.ko|Collecting environment information"
    r"|PyTorch version: "
    r"|# packages in environment at |nvcc: NVIDIA |Package {1,40}Version\s|Desired=Unknown/Install)",
    re.M,
)
_LIST = re.compile(
    r"^(?:ii  \S{2,80} {1,60}\S{2,60}|[A-Za-z][\w.-]{1,60}==\S{1,40}"
    r"|[\w.+-]{3,80}-\d[\w.+~-]{1,60}\.(?:x86_64|noarch|aarch64))",
    re.M,
)


_ASKED = "driver_version"  # the heading of nvidia-smi --query-gpu=driver_version --format=csv
_DRIVER = re.compile(r"[3-9]\d\d\.\d{2,3}(?:\.\d{2})?")
_PIP = re.compile(r'"name": ?"([\w.-]{1,60})", ?"version": ?"([^"]{1,40})"')


def _rows(text: str) -> str:
    """`pip list --format json` as rows of pip freeze."""
    return "\n".join(f"{name}=={version}" for name, version in _PIP.findall(text.replace("\n", " ")))


_TUPLE = re.compile(r"\((\d{1,2}), (\d{1,3}), (\d{1,3})\)\s{0,8}")  # torch.cuda.nccl.version()


def _fits(head: str, name: str) -> bool:
    if _TUPLE.fullmatch(head):
        return "nccl" in name
    if "libnccl.so.2 -> " in head:
        return True
    if _SURE.search(head[:8192]):
        return any(pattern.search(head) for _, pattern in _PATTERNS)
    if head.lstrip()[:1] == "[":
        return '"name"' in head[:400] and '"version"' in head[:400] and any(p.search(_rows(head)) for _, p in _PATTERNS)
    lines = [line for line in head[:32768].splitlines() if line.strip()][:200]
    lines = lines[1:] if lines[:1] == [_ASKED] else lines
    if lines and len(set(lines)) == 1 and _DRIVER.fullmatch(lines[0].strip()):
        return True  # nvidia-smi --query-gpu=driver_version, modinfo -F version
    if 0 < len(lines) <= 12 and all(any(pattern.match(line) for _, pattern in _PATTERNS) for line in lines):
        return True  # `pip list | grep -E "torch|nccl"`
    many = sum(bool(_LIST.match(line)) for line in lines)
    return many * 4 >= len(lines) * 3 > 0 and any(pattern.search(head) for _, pattern in _PATTERNS[:15])


def read(text: str) -> Versions:
    found: dict[str, str] = {}
    text = text.lstrip().removeprefix(f"{_ASKED}\n")
    if (alone := _DRIVER.match(text.strip())) is not None and len(set(text.split())) == 1:
        return Versions({"driver": alone[0]})
    if text.lstrip()[:1] == "[":
        text = _rows(text[:4_194_304])
    if bare := _TUPLE.fullmatch(text):
        return Versions({"NCCL": ".".join(bare.groups())})
    if (kind := _KIND.search(text[:4_194_304])) is not None:
        found["driver kind"] = f"{'open' if kind[1] else 'closed'} kernel module"
    for component, pattern in _PATTERNS:
        if component not in found and (hit := pattern.search(text[:4_194_304])):
            found[component] = clean(hit[1])[:60]
    if "nvidia.ko" not in text[:4096]:
        found.pop("driver module file", None)
    if not found:
        raise ParseError("expected versions of driver, CUDA, NCCL or torch, found none")
    return Versions(found)


TOOL = Tool("versions", "host.versions", _fits, read, version_findings)
