"""NVML through ctypes, under pynvml's own names: for nodes whose Python has no pynvml.

SENT TO THE NODE (gpu.state): compiled there by Python 3.6 and later, so no newer syntax. Names, layouts and codes are
those of nvml.h (NVML API reference); that they agree with pynvml's own is tested on one and the same library.

Errors   OSError where libnvidia-ml.so.1 is not where the loader looks; ImportError where Python has no ctypes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
    Fabric = struct(("uuid", ctypes.c_ubyte * 16), ("status", c_uint), ("clique", c_uint), ("state", ctypes.c_ubyte))

    class Nvml:  # the part of pynvml that `values` uses
        c_nvmlGpuFabricInfo_t = Fabric

        def c_nvmlEccSramErrorStatus_v1_t(self) -> Any:
            return Sram(version=0x1000068)

        def __getattr__(self, name: str) -> Callable[..., Any]:
            wide = ("TotalEccErrors", "ClocksEventReasons", "ClocksThrottleReasons", "NvLinkErrorCounter")
            bare = name[13:].replace("Current", "")  # without nvmlDeviceGet
            kind = Rates if bare == "UtilizationRates" else c_ulonglong if bare in wide else c_uint

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

        def nvmlDeviceGetVbiosVersion(self, handle: Any) -> str:
            return self.text("nvmlDeviceGetVbiosVersion", handle)

        def nvmlDeviceGetGspFirmwareVersion(self, handle: Any) -> str:
            out = ctypes.create_string_buffer(128)  # the only one that is not told its size: 64 (nvml.h)
            call("nvmlDeviceGetGspFirmwareVersion", handle, out)
            return out.value.decode("utf-8", "replace")

        def nvmlDeviceGetHandleByPciBusId(self, bus: bytes) -> Any:
            handle = c_void_p()
            call("nvmlDeviceGetHandleByPciBusId_v2", bus, byref(handle))
            return handle

        def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int) -> Any:
            out = Memory(version=version)
            call("nvmlDeviceGetMemoryInfo_v2", handle, byref(out))
            return out

        def nvmlDeviceGetFieldValues(self, handle: Any, ids: list[Any]) -> Any:
            out = (Field * len(ids))()
            for at, number in enumerate(ids):
                out[at].fieldId, out[at].scopeId = number if isinstance(number, tuple) else (number, 0)
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

        def nvmlDeviceGetEccMode(self, handle: Any) -> list[int]:
            return self.several("nvmlDeviceGetEccMode", handle, 2)

        def nvmlDeviceGetSramEccErrorStatus(self, handle: Any, out: Any) -> None:
            call("nvmlDeviceGetSramEccErrorStatus", handle, out)

        def nvmlDeviceGetGpuFabricInfo(self, handle: Any, out: Any) -> None:
            call("nvmlDeviceGetGpuFabricInfo", handle, out)

        def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:
            count, out = c_uint(512), (Process * 512)()
            call("nvmlDeviceGetComputeRunningProcesses_v3", handle, byref(count), byref(out))
            return list(out[: count.value])

    return Nvml()
