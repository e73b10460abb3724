"""Reads /sys/class/infiniband, one process per HCA: the driver of a dead HCA can sleep in each read for a minute.

The counters are read twice, a second apart: what they did before nobody knows.

SENT TO THE NODE (ib.ports): compiled there by Python 3.6 and later; only names of probes.runner beside its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from probes.runner import Absent, isolate, read


def collect() -> Mapping[str, str]:
    import errno
    import json
    import os
    import time

    root = "/sys/class/infiniband"
    of_hca = ("node_guid", "node_desc", "fw_ver", "hca_type", "board_id", "device/uevent")
    of_port = ("link_layer", "state", "phys_state", "rate", "lid", "sm_lid", "gid_attrs/ndevs/0")

    def listed(path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except OSError:
            return []

    def one(hca: str) -> Callable[[], str]:
        def work() -> str:
            parts = {}  # type: dict[str, str]
            refusing = []  # type: list[str]

            def keep(path: str, must: bool = False) -> bool:
                """Whether the driver did not refuse it as such."""
                try:
                    parts[path] = read(path, 4096).strip("\n")
                except OSError as error:  # some counters of some drivers refuse: known to be there, value not known
                    if must:
                        parts[path] = ""
                    return error.errno != errno.EINVAL
                return True

            def counted(port: str) -> bool:
                """Whether the counters may be read again. Adapters that are there for a switch's own use refuse each,
                with a line in the kernel log (node_exporter issue 3434): three in a row are enough."""
                refused = 0
                for group in ("counters", "hw_counters"):
                    for name in listed(f"{base}/ports/{port}/{group}"):
                        refused = 0 if keep(f"{base}/ports/{port}/{group}/{name}", True) else refused + 1
                        if refused == 3:
                            return False
                return True

            base = f"{root}/{hca}"
            for name in of_hca:
                keep(f"{base}/{name}")
            for name in listed(f"{base}/device/net"):
                keep(f"{base}/device/net/{name}/operstate")
            for port in listed(f"{base}/ports"):
                for name in of_port:
                    keep(f"{base}/ports/{port}/{name}")
                for at in range(32):  # the tables have 256 places, of which the first few are taken
                    gid = f"{base}/ports/{port}/gids/{at}"
                    keep(gid)
                    if parts.get(gid, "").strip("0:"):
                        keep(f"{base}/ports/{port}/gid_attrs/types/{at}")
                        keep(f"{base}/ports/{port}/gid_attrs/ndevs/{at}")
                    else:
                        parts.pop(gid, "")
                for at in range(8):
                    keep(f"{base}/ports/{port}/pkeys/{at}")
                parts[f"golden15/clock {hca}/{port}"] = f"{time.time()!r} {time.monotonic()!r}"
                if not counted(port):
                    refusing.append(port)
            time.sleep(1.0)  # only what rises in between tells of now
            for port in [port for port in listed(f"{base}/ports") if port not in refusing]:
                told = {"at": time.time(), "mono": time.monotonic()}  # type: dict[str, object]
                for group in ("counters", "hw_counters"):
                    found = {}
                    for name in listed(f"{base}/ports/{port}/{group}"):
                        try:
                            found[name] = read(f"{base}/ports/{port}/{group}/{name}", 64).strip()
                        except OSError:
                            found[name] = ""
                    told[group] = found
                parts[f"golden15/again {hca}/{port}"] = json.dumps(told)
            return json.dumps(parts)

        return work

    hcas = listed(root)
    if not hcas:
        raise Absent("no InfiniBand or RoCE adapter: /sys/class/infiniband is empty or not there")
    found = {"/proc/sys/kernel/random/boot_id": read("/proc/sys/kernel/random/boot_id").strip()}
    for answer in isolate([(hca, one(hca)) for hca in hcas], 3.0):
        text = answer.pop("text")
        if answer["outcome"] == "ok":
            found.update({path: value.replace("\n==> ", "\n= => ") for path, value in json.loads(text).items()})
        else:
            found["golden15/silent " + answer["name"]] = json.dumps(answer)
    return found
