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

from probes.catalog import _gpu_ladder
from probes.runner import Absent, isolate, read, which


def collect() -> Mapping[str, str]:
    import json
    import os
    import signal

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

    def library() -> Any:
        import ctypes
        from ctypes import byref, c_int, c_longlong, c_uint, c_ulonglong, c_void_p

        lib = ctypes.CDLL("libnvidia-ml.so.1")

        class Failed(Exception):
            def __init__(self, value: int):
                Exception.__init__(self, f"NVML error {value}")
                self.value = value

        def call(name: str, *arguments: Any) -> None:
            code = getattr(lib, name)(*arguments)  # AttributeError: an older library
            if code:
                raise Failed(code)

        def struct(*members: Any) -> Any:
            return type("struct", (ctypes.Structure,), {"_fields_": list(members)})

        # Layouts from nvml.h. Memory v2: "used" leaves out what the driver reserves, as nvidia-smi does.
        Memory = struct(("version", c_uint), *((n, c_ulonglong) for n in ("total", "reserved", "free", "used")))
        Rates = struct(("gpu", c_uint), ("memory", c_uint))
        Value = type("Value", (ctypes.Union,), {"_fields_": [("dVal", ctypes.c_double), ("uiVal", c_uint),
            ("ulVal", ctypes.c_ulong), ("ullVal", c_ulonglong), ("sllVal", c_longlong), ("siVal", c_int),
            ("usVal", ctypes.c_ushort)]})  # fmt: skip
        Field = struct(("fieldId", c_uint), ("scopeId", c_uint), ("timestamp", c_longlong), ("latencyUsec", c_longlong),
            ("valueType", c_uint), ("nvmlReturn", c_uint), ("value", Value))  # fmt: skip
        Process = struct(("pid", c_uint), ("usedGpuMemory", c_ulonglong), ("gi", c_uint), ("ci", c_uint))
        counts = [(f"count{n}", c_ulonglong) for n in range(11)]
        Sram = struct(("version", c_uint), *counts, ("bThresholdExceeded", c_uint))
        Fabric = struct(
            ("uuid", ctypes.c_ubyte * 16), ("status", c_uint), ("clique", c_uint), ("state", ctypes.c_ubyte)
        )

        class Nvml:  # the part of pynvml that `values` uses
            c_nvmlGpuFabricInfo_t = Fabric

            def c_nvmlEccSramErrorStatus_v1_t(self) -> Any:
                return Sram(version=0x1000068)

            def __getattr__(self, name: str) -> Callable[..., Any]:
                kind = {"TotalEccErrors": c_ulonglong, "ClocksEventReasons": c_ulonglong, "UtilizationRates": Rates,
                    "ClocksThrottleReasons": c_ulonglong}.get(name[13:].replace("Current", ""), c_uint)  # fmt: skip

                def number(*arguments: Any) -> Any:
                    out = kind()
                    call(name, *(arguments + (byref(out),)))
                    return out if kind is Rates else out.value

                return number

            def nvmlInit(self) -> None:
                call("nvmlInit_v2")

            def text(self, name: str, *arguments: Any) -> str:
                out = ctypes.create_string_buffer(128)
                call(name, *(arguments + (out, c_uint(128))))
                return out.value.decode("utf-8", "replace")

            def nvmlSystemGetDriverVersion(self) -> str:
                return self.text("nvmlSystemGetDriverVersion")

            def nvmlDeviceGetName(self, handle: Any) -> str:
                return self.text("nvmlDeviceGetName", handle)

            def nvmlDeviceGetUUID(self, handle: Any) -> str:
                return self.text("nvmlDeviceGetUUID", handle)

            def nvmlDeviceGetHandleByPciBusId(self, bus: bytes) -> Any:
                handle = c_void_p()
                call("nvmlDeviceGetHandleByPciBusId_v2", bus, byref(handle))
                return handle

            def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int) -> Any:
                out = Memory(version=version)
                call("nvmlDeviceGetMemoryInfo_v2", handle, byref(out))
                return out

            def nvmlDeviceGetFieldValues(self, handle: Any, ids: list[int]) -> Any:
                out = (Field * len(ids))()
                for at, number in enumerate(ids):
                    out[at].fieldId = number
                call("nvmlDeviceGetFieldValues", handle, c_int(len(ids)), byref(out))
                return out

            def several(self, name: str, handle: Any, count: int) -> list[int]:
                out = [c_uint() for _ in range(count)]
                call(name, handle, *[byref(one) for one in out])
                return [one.value for one in out]

            def nvmlDeviceGetRemappedRows(self, handle: Any) -> list[int]:
                return self.several("nvmlDeviceGetRemappedRows", handle, 4)

            def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
                return self.several("nvmlDeviceGetMigMode", handle, 2)

            def nvmlDeviceGetSramEccErrorStatus(self, handle: Any, out: Any) -> None:
                call("nvmlDeviceGetSramEccErrorStatus", handle, out)

            def nvmlDeviceGetGpuFabricInfo(self, handle: Any, out: Any) -> None:
                call("nvmlDeviceGetGpuFabricInfo", handle, out)

            def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:
                count, out = c_uint(512), (Process * 512)()
                call("nvmlDeviceGetComputeRunningProcesses_v3", handle, byref(count), byref(out))
                return list(out[: count.value])

        return Nvml()

    def code(error: Exception) -> int:
        value = getattr(error, "value", None)  # of pynvml's NVMLError and of ours
        return value if isinstance(value, int) else 13 if isinstance(error, (AttributeError, TypeError)) else 999

    def values(nv: Any, handle: Any, byref: Any) -> dict[str, Any]:
        got: dict[str, Any] = {}
        errors: dict[str, int] = {}
        numbers = [230, 226, 227, 74, 76, 269, 270, 271]  # recovery action, its two forerunners, time per reason

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

        def fields() -> None:
            kinds = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
            for field in nv.nvmlDeviceGetFieldValues(handle, numbers):
                name = f"field_{field.fieldId}"
                if field.nvmlReturn:
                    errors[name] = int(field.nvmlReturn)
                elif field.valueType < len(kinds):
                    got[name] = int(getattr(field.value, kinds[field.valueType]))

        # The driver's own verdict and what needs the least of the GPU first: whatever hangs later, these are evidence.
        ask("fields", fields)
        ask("index", lambda: nv.nvmlDeviceGetIndex(handle))
        ask("name", lambda: nv.nvmlDeviceGetName(handle))
        ask("uuid", lambda: nv.nvmlDeviceGetUUID(handle))
        ask("persistence", lambda: nv.nvmlDeviceGetPersistenceMode(handle))
        ask("mig", lambda: list(nv.nvmlDeviceGetMigMode(handle)))
        ask("pstate", lambda: nv.nvmlDeviceGetPerformanceState(handle))
        ask("temperature", lambda: nv.nvmlDeviceGetTemperature(handle, 0))
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
        ask("sram_threshold", sram)
        ask("remapped", lambda: list(nv.nvmlDeviceGetRemappedRows(handle)))
        ask("pcie_gen", lambda: nv.nvmlDeviceGetCurrPcieLinkGeneration(handle))
        ask("pcie_gen_max", lambda: nv.nvmlDeviceGetMaxPcieLinkGeneration(handle))
        ask("pcie_width", lambda: nv.nvmlDeviceGetCurrPcieLinkWidth(handle))
        ask("pcie_width_max", lambda: nv.nvmlDeviceGetMaxPcieLinkWidth(handle))
        ask("fabric", fabric)
        ask("pids", lambda: [int(one.pid) for one in nv.nvmlDeviceGetComputeRunningProcesses(handle)])
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
                    nv, way = library(), "libnvidia-ml.so.1"
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
        _gpu_ladder.none_stuck("each GPU's own")
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
