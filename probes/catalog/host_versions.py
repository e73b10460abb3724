"""Which versions of driver, NCCL, torch, kernel and adapter firmware does this node run with, and do they fit together?

Source   /proc/driver/nvidia/version and /sys/module/nvidia/version (the loaded driver), the names of libcuda.so.* and
         libnvidia-ml.so.* that the loader's folders hold (what programs load), modinfo(8) (what the next boot loads),
         /proc/PID/maps of ranks and, in their own root, the folders of torch and NCCL beside what they mapped,
         /sys/class/infiniband/*/fw_ver; the image of ranks in containers by their os-release and by what NVIDIA's
         images, Apptainer and Singularity set (NVIDIA_PYTORCH_VERSION, APPTAINER_NAME, SINGULARITY_NAME); whether the
         kernel has dma-buf by /proc/config.gz or /boot/config-*. No driver is asked and nothing is imported
Units    none
Shape    Versions: component -> version; "A and B" where ranks of one node differ
Errors   ParseError when a line is not what the collector writes
"""

from __future__ import annotations

from collections.abc import Mapping

from probes.catalog.host.facts import Versions, version_findings
from probes.core import ParseError, Probe, clean, sections
from probes.runner import ranks, read, sh, which

__all__ = ["PROBE", "Versions", "findings", "parse"]

findings = version_findings
MOST = 64


def _collect() -> Mapping[str, str]:
    import os
    import re
    import zlib

    rows: list[tuple[str, str]] = []

    def text(path: str, limit: int = 4096) -> str:
        try:
            return read(path, limit)
        except OSError:
            return ""

    def names(folder: str) -> list[str]:
        try:
            return os.listdir(folder)[:20000]
        except OSError:
            return []

    def add(component: str, version: str) -> None:
        if version and (component, version) not in rows:
            rows.append((component, version))

    def of_library(folder: str, start: str) -> str:
        """The version in the name that a library's soname stands for."""
        whole = os.path.realpath(os.path.join(folder, start + ".1"))
        return os.path.basename(whole)[len(start) + 1 :] if os.path.exists(whole) else ""

    def kernel_options(release: str) -> str:
        """With which options the kernel was built; "" where neither file is there or may be read."""
        try:
            with open("/proc/config.gz", "rb") as handle:
                return zlib.decompress(handle.read(1048576), 31).decode("ascii", "replace")
        except (OSError, zlib.error):
            return text("/boot/config-" + release, 1048576)

    def image(pid: int) -> str:
        """What a rank in a container was started from, as far as that shows inside; "" for one outside."""
        told = dict(item.partition("=")[::2] for item in text(f"/proc/{pid}/environ", 1048576).split("\0"))
        names = [told.get("APPTAINER_NAME") or told.get("SINGULARITY_NAME") or ""]
        if told.get("NVIDIA_PYTORCH_VERSION"):
            names.append("NGC PyTorch " + told["NVIDIA_PYTORCH_VERSION"])
        try:
            inside = os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
        except OSError:
            inside = False
        system = re.search(r'^PRETTY_NAME="?([^"\n]{1,60})', text(f"/proc/{pid}/root/etc/os-release"), re.M)
        if system and (inside or any(names)):
            names.append(system.group(1))
        return ", ".join(name for name in names if name)

    loaded = re.search(r"Kernel Module(?: for \S+)? +(\d[\d.]+)", text("/proc/driver/nvidia/version"))
    add("driver", loaded.group(1) if loaded else text("/sys/module/nvidia/version").strip())
    if loaded:
        kind = "open" if "Open Kernel Module" in text("/proc/driver/nvidia/version") else "closed"
        add("driver kind", kind + " kernel module")
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"):
        for start in ("libnvidia-ml.so", "libcuda.so"):
            found = of_library(folder, start)
            if re.match(r"\d{3}\.\d", found):
                add("driver library", found)
    if rows and which("modinfo"):
        code, out, _ = sh(["modinfo", "-F", "version", "nvidia"], 4096)
        add("driver module file", out.strip() if code == 0 else "")
    add("kernel", os.uname()[2])
    options = kernel_options(os.uname()[2])
    if options:
        add("dma-buf", "built in" if "\nCONFIG_DMA_SHARED_BUFFER=y" in options else "not built in")
    for name in sorted(names("/sys/class/infiniband"))[:32]:
        board = text(f"/sys/class/infiniband/{name}/board_id").strip()
        add(f"firmware of {board or 'an adapter'}", text(f"/sys/class/infiniband/{name}/fw_ver").strip())
    seen = set()
    for row in [row for row in ranks() if row["worker_of"] is None][:64]:
        root = f"/proc/{row['pid']}/root"
        add("image of ranks", image(row["pid"]))
        folders = set()
        for line in text(f"/proc/{row['pid']}/maps", 8388608).split("\n"):
            fields = line.split(None, 5)
            path = fields[5].replace(" (deleted)", "") if len(fields) == 6 else ""
            name = path.rpartition("/")[2]
            if name.startswith("libnccl.so"):
                folders.add(("NCCL", path))
            elif name.startswith("librccl.so"):
                folders.add(("RCCL", path))
            elif name.startswith("libtorch_cpu.so"):
                folders.add(("torch", path))
        try:
            space = os.readlink(f"/proc/{row['pid']}/ns/mnt")
        except OSError:
            space = str(row["pid"])
        for component, path in folders:
            if (space, component, path) in seen:
                continue
            seen.add((space, component, path))
            if component == "torch":
                told = text(root + os.path.dirname(os.path.dirname(path)) + "/version.py", 65536)
                for key, what in (("__version__", "torch"), ("cuda", "CUDA runtime"), ("hip", "ROCm")):
                    hit = re.search(r"^" + key + r"[^=\n]{0,40}= ['\"]([\w.+-]{1,40})['\"]", told, re.M)
                    add(what, hit.group(1) if hit else "")
                continue
            hit = re.search(r"\.so\.(\d+\.\d+[\d.]*)$", os.path.basename(path))
            if hit:
                add(component, hit.group(1))
                continue
            site = root + path.partition("/nvidia/nccl/")[0]  # of pip: the version stands in the folder beside it
            for name in names(site) if "/nvidia/nccl/" in path else ():
                pip = re.match(r"nvidia_nccl_cu\d+-([\d.]+)\.dist-info$", name)
                add(component, pip.group(1) if pip else "")
    return {"versions": "\n".join(f"{component}\t{version}" for component, version in rows)}


def parse(text: str) -> Versions:
    """Lines of component, tab, version."""
    parts = sections(text)
    if "versions" not in parts:
        raise ParseError(f"expected the section versions, found {', '.join(parts)[:80]}")
    found: dict[str, list[str]] = {}
    for line in parts["versions"].split("\n")[:MOST]:
        if not line.strip():
            continue
        component, tab, version = line.partition("\t")
        if not tab or not component or not version.strip():
            raise ParseError(f"versions: expected a component, a tab and a version, found {line[:60]!r}")
        found.setdefault(clean(component)[:60], []).append(clean(version.strip())[:60])
    return Versions({component: " and ".join(sorted(set(versions))) for component, versions in found.items()})


PROBE = Probe(
    "host.versions",
    "Which versions of driver, NCCL, torch and firmware run here, and do they fit together?",
    parse,
    findings,
    collect=_collect,
    by_hand="cat /proc/driver/nvidia/version; modinfo -F version nvidia; pip list; cat /sys/class/infiniband/*/fw_ver",
    timeout_s=6.0,
    needs="for NCCL and torch: root or the login of the user who trains",
    cost="15 ms",
)
