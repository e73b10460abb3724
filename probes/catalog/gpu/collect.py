"""Asks for the state of every NVIDIA GPU of a node, so that a GPU that does not answer costs only its own part.

SENT TO THE NODE (gpu.state): compiled there by Python 3.6 and later, so no newer syntax, and only names of
probes.runner beside its own. The NVML way was never run on a GPU: it is tested against a library that the tests build.

- The GPUs come from sysfs, without the driver. Each is then asked by a process of its own, by bus id (looking one up by
  UUID or serial number may touch the others), because a call into a sick driver can sleep for ever.
- nvmlInit attaches to no GPU; nvmlDeviceGetHandleByPciBusId attaches to this one only (NVML API reference).
- pynvml where the node has it, else libnvidia-ml.so.1 through ctypes under pynvml's own names, else nvidia-smi.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from probes.catalog.gpu import ladder, library
from probes.runner import Absent, isolate, read, which


def collect() -> Mapping[str, str]:
    import contextlib
    import json
    import os
    import signal
    import time

    deadline_s = 5.0
    folder = "/sys/bus/pci/devices"

    def on_pci() -> list[dict[str, Any]]:
        found = []
        for bus in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:

            def value(name: str, bus: str = bus) -> str:
                try:
                    return read(f"{folder}/{bus}/{name}", 256).strip()
                except OSError:
                    return ""

            if value("vendor") == "0x10de" and value("class")[:6] in ("0x0300", "0x0302"):
                gpu = {"bus_id": bus, "width": value("current_link_width"), "width_max": value("max_link_width")}
                link = f"{folder}/{bus}/driver"
                gpu["driver"] = os.path.basename(os.readlink(link)) if os.path.islink(link) else ""
                found.append(gpu)
        return found

    def code(error: Exception) -> int:
        value = getattr(error, "value", None)  # of pynvml's NVMLError and of ours
        return value if isinstance(value, int) else 13 if isinstance(error, (AttributeError, TypeError)) else 999

    def values(nv: Any, handle: Any, byref: Any) -> dict[str, Any]:
        got: dict[str, Any] = {}
        errors: dict[str, int] = {}
        # Recovery action, its two forerunners, temperature of the memory, PCIe replays, time held down per reason.
        numbers = [230, 226, 227, 82, 94, 74, 76, 269, 270, 271]
        began = time.monotonic()

        def ask(name: str, question: Callable[[], Any]) -> None:
            try:
                answer = question()
                got[name] = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
            except Exception as error:
                errors[name] = code(error)

        def reasons() -> int:
            try:
                return int(nv.nvmlDeviceGetCurrentClocksEventReasons(handle))
            except AttributeError:  # before driver 535
                return int(nv.nvmlDeviceGetCurrentClocksThrottleReasons(handle))

        def memory() -> None:
            info = nv.nvmlDeviceGetMemoryInfo(handle, version=0x2000028)
            got.update(memory_used=int(info.used), memory_total=int(info.total))

        def sram() -> int:
            status = nv.c_nvmlEccSramErrorStatus_v1_t()
            nv.nvmlDeviceGetSramEccErrorStatus(handle, byref(status))
            return int(status.bThresholdExceeded)

        def fabric() -> None:
            info = nv.c_nvmlGpuFabricInfo_t()
            nv.nvmlDeviceGetGpuFabricInfo(handle, byref(info))
            got.update(fabric_state=int(info.state), fabric_status=int(info.status))

        def fields(into: dict[str, Any], wanted: list[Any], failed: dict[str, int]) -> None:
            kinds = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
            for field in nv.nvmlDeviceGetFieldValues(handle, wanted):
                name = f"field_{field.fieldId}"
                if field.nvmlReturn:
                    failed[name] = int(field.nvmlReturn)
                elif field.valueType < len(kinds):
                    into[name] = int(getattr(field.value, kinds[field.valueType]))

        def of_link(link: int) -> dict[str, Any]:
            """Its counters by nvmlNvLinkErrorCounter_t: replays, recoveries, CRC errors of flow control and of data,
            ECC errors. From Blackwell on the driver refuses those and counts in fields (206 to 214, nvml.h)."""
            told: dict[str, Any] = {}
            try:
                return {str(n): int(nv.nvmlDeviceGetNvLinkErrorCounter(handle, link, n)) for n in range(5)}
            except Exception as error:
                errors["link_counters"] = code(error)
            with contextlib.suppress(Exception):
                fields(told, [(number, link) for number in (206, 207, 208, 211, 214)], {})
            return told

        def links(before: list[list[Any]] | None) -> list[list[Any]]:
            """[link, its counters] of each NVLink that is up."""
            found: list[list[Any]] = []
            for link in [row[0] for row in before] if before is not None else range(36):
                if time.monotonic() - began > 3.0:
                    break
                if before is None:
                    try:
                        if not nv.nvmlDeviceGetNvLinkState(handle, link):
                            continue
                    except Exception:
                        break  # it has no such link, nor any after it
                found.append([link, of_link(link)])
            return found

        def again() -> dict[str, Any]:
            """Only what rises in between tells of now."""
            time.sleep(max(0.0, first_at + 1.0 - time.monotonic()))
            told: dict[str, Any] = {"s": time.monotonic() - first_at}
            fields(told, numbers[4:], errors)
            with contextlib.suppress(Exception):
                told["ecc_corrected"] = int(nv.nvmlDeviceGetTotalEccErrors(handle, 0, 0))
            if got.get("links"):
                told["links"] = links(got["links"])
            return told

        # The driver's own verdict and what needs the least of the GPU first: whatever hangs later, these are evidence.
        first_at = time.monotonic()
        ask("fields", lambda: fields(got, numbers, errors))
        ask("index", lambda: nv.nvmlDeviceGetIndex(handle))
        ask("name", lambda: nv.nvmlDeviceGetName(handle))
        ask("uuid", lambda: nv.nvmlDeviceGetUUID(handle))
        ask("vbios", lambda: nv.nvmlDeviceGetVbiosVersion(handle))
        ask("gsp", lambda: nv.nvmlDeviceGetGspFirmwareVersion(handle))
        ask("persistence", lambda: nv.nvmlDeviceGetPersistenceMode(handle))
        ask("mig", lambda: list(nv.nvmlDeviceGetMigMode(handle)))
        ask("pstate", lambda: nv.nvmlDeviceGetPerformanceState(handle))
        ask("temperature", lambda: nv.nvmlDeviceGetTemperature(handle, 0))
        ask("slowdown_at", lambda: nv.nvmlDeviceGetTemperatureThreshold(handle, 1))
        ask("memory_at", lambda: nv.nvmlDeviceGetTemperatureThreshold(handle, 2))
        ask("sm", lambda: nv.nvmlDeviceGetClockInfo(handle, 1))
        ask("sm_max", lambda: nv.nvmlDeviceGetMaxClockInfo(handle, 1))
        ask("reasons", reasons)
        ask("power", lambda: nv.nvmlDeviceGetPowerUsage(handle))
        ask("power_limit", lambda: nv.nvmlDeviceGetEnforcedPowerLimit(handle))
        ask("power_default", lambda: nv.nvmlDeviceGetPowerManagementDefaultLimit(handle))
        ask("utilisation", lambda: int(nv.nvmlDeviceGetUtilizationRates(handle).gpu))
        ask("memory", memory)
        ask("ecc_corrected", lambda: nv.nvmlDeviceGetTotalEccErrors(handle, 0, 0))
        ask("ecc_uncorrected", lambda: nv.nvmlDeviceGetTotalEccErrors(handle, 1, 0))
        ask("ecc_mode", lambda: list(nv.nvmlDeviceGetEccMode(handle)))
        ask("sram_threshold", sram)
        ask("remapped", lambda: list(nv.nvmlDeviceGetRemappedRows(handle)))
        ask("pcie_gen", lambda: nv.nvmlDeviceGetCurrPcieLinkGeneration(handle))
        ask("pcie_gen_max", lambda: nv.nvmlDeviceGetMaxPcieLinkGeneration(handle))
        ask("pcie_width", lambda: nv.nvmlDeviceGetCurrPcieLinkWidth(handle))
        ask("pcie_width_max", lambda: nv.nvmlDeviceGetMaxPcieLinkWidth(handle))
        ask("fabric", fabric)
        ask("pids", lambda: [int(one.pid) for one in nv.nvmlDeviceGetComputeRunningProcesses(handle)])
        ask("links", lambda: links(None))
        ask("again", again)
        asked = {"memory": ["memory_used", "memory_total"], "fabric": ["fabric_state", "fabric_status"],
            "fields": [f"field_{number}" for number in numbers]}  # fmt: skip
        for whole in [whole for whole in asked if whole in errors]:
            errors.update(dict.fromkeys(asked[whole], errors.pop(whole)))
        return {"values": {name: one for name, one in got.items() if one is not None}, "errors": errors}

    def smi(arguments: list[str]) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # nvidia-smi becomes this process: its state is the evidence
        os.execvp("nvidia-smi", ["nvidia-smi", "-q"] + arguments)

    def one(bus: str) -> Callable[[], Any]:
        def work() -> Any:
            import site
            import sys

            # Nothing may stay on the node; and under our limit of file size Python would leave a cut, corrupt .pyc.
            sys.dont_write_bytecode = True
            try:
                from ctypes import byref

                try:
                    sys.path.extend(site.getsitepackages())  # the runner was started with -S
                    import pynvml as nv

                    way = "pynvml"
                except ImportError:
                    nv, way = library.library(), "libnvidia-ml.so.1"
            except (ImportError, OSError):  # no ctypes, or no library where the loader looks
                if which("nvidia-smi"):
                    return smi(["-i", bus])
                raise Absent("neither libnvidia-ml.so.1 nor nvidia-smi is installed") from None
            told: dict[str, Any] = {"way": way}
            try:
                nv.nvmlInit()
                told["driver"] = nv.nvmlSystemGetDriverVersion()
                if isinstance(told["driver"], bytes):
                    told["driver"] = told["driver"].decode("utf-8", "replace")
                told.update(values(nv, nv.nvmlDeviceGetHandleByPciBusId(bus.encode()), byref))
            except Exception as error:
                told["error"] = code(error)
            return json.dumps(told)

        return work

    gpus = on_pci()
    asked = [gpu["bus_id"] for gpu in gpus if gpu["driver"] == "nvidia"]
    if not gpus and not which("nvidia-smi"):
        raise Absent("no NVIDIA GPU on the PCI bus (vendor 0x10de, class 0x0300 or 0x0302), and no nvidia-smi")
    calls = [(bus, one(bus)) for bus in asked] or ([] if gpus else [("all", lambda: smi([]))])
    if calls:  # a call more would be one more process that nobody can end, and tell nothing new
        ladder.none_stuck("each GPU's own")
    parts = {"golden15/pci": json.dumps({"gpus": gpus})}
    for answer in isolate(calls, deadline_s):
        bus, text = answer["name"], answer.pop("text").replace("\n==> ", "\n= => ")
        if bus == "all" and "No devices were found" in text:
            raise Absent("no NVIDIA GPU: none on the PCI bus, and nvidia-smi says that no devices were found")
        if text.startswith("{") and answer["outcome"] == "ok":
            parts["golden15/nvml " + bus] = text
        elif text.strip() and answer["outcome"] in ("ok", "failed"):
            parts["nvidia-smi -q" + ("" if bus == "all" else " -i " + bus)] = text
        else:
            parts["golden15/silent " + bus] = json.dumps(answer)
    return parts
