"""Words that begin a command: what people type while they look for a fault.

Shape    is_command(line) -> whether a line is a command that somebody typed
Errors   none
"""

from __future__ import annotations

import re

PROGRAMS = frozenset((
    "all_reduce_perf", "amd-smi", "ansible", "apptainer", "arp", "atop", "awk", "bandwidthTest", "bash", "blkid",
    "bpftrace", "cat", "cgget", "cgroups", "chronyc", "chrt", "clush", "compute-sanitizer", "cpupower", "crash",
    "crictl", "ctr", "cuda-gdb", "cuda-memcheck", "curl", "cut", "cyclictest", "date", "dcb", "dcgm-exporter",
    "dcgmi", "df", "dmesg", "dmidecode", "docker", "dsh", "dstat", "du", "echo", "egrep", "enroot", "env", "ethtool",
    "fabricmanager", "fgrep", "file", "find", "findmnt", "free", "fuser", "gdb", "getent", "glances", "gpustat",
    "grep", "head", "hostname", "htop", "hwloc-bind", "hwloc-ls", "ib_read_bw", "ib_send_bw", "ib_write_bw",
    "ibdev2netdev", "ibdiagnet", "iblinkinfo", "ibnetdiscover", "ibping", "ibqueryerrors", "ibstat", "ibstatus",
    "ibv_devinfo", "ifconfig", "iostat", "iotop", "ip", "ipmitool", "iptables", "iptables-save", "irqbalance",
    "journalctl", "kdump", "kubectl", "last", "lctl", "lfs", "lldptool", "ls", "lsblk", "lscpu", "lsmod", "lsof",
    "lspci", "lstart", "lstopo", "mlnx_qos", "mlxlink", "mount", "mpirun", "mpstat", "mstlink", "nc", "ncclras",
    "ncu", "nerdctl", "netstat", "nfsiostat", "nfsstat", "nft", "nproc", "nstat", "nsys", "ntpq", "numactl",
    "numastat", "nv-fabricmanager", "nv-hostengine", "nvbandwidth", "nvidia-bug-report.sh", "nvidia-smi", "nvsm",
    "nvtop", "oc", "offcputime", "opensm", "p2pBandwidthLatencyTest", "parallel-ssh", "pdcp", "pdsh", "perf",
    "perfquery", "pgrep", "pidof", "pidstat", "ping", "pmap", "podman", "printenv", "prlimit", "ps", "psh", "pssh",
    "pstree", "py-spy", "pystack", "python", "python3", "rdma", "rdmatool", "rocm-smi", "route", "rsh", "runqlat",
    "rvs", "sacct", "sadf", "salt", "sar", "sattach", "sbatch", "schedtool", "scontrol", "sed", "seff", "sensors",
    "sh", "show_counters", "show_gids", "sinfo", "singularity", "sleep", "sminfo", "sort", "sos", "sprio", "squeue",
    "sreport", "srun", "ss", "ssh", "sstat", "stat", "strace", "stress-ng", "sysctl", "systemctl", "systemd-cgls",
    "systemd-cgtop", "tail", "taskset", "tc", "timedatectl", "tload", "top", "torchrun", "tr", "traceroute",
    "tuned-adm", "turbostat", "ulimit", "uname", "uptime", "vmstat", "w", "watch", "wc", "who", "xdsh", "zcat",
    "zgrep",
))  # fmt: skip
_WORD = re.compile(r"[\w.+/-]{1,80}")
_LOOP = re.compile(r"for \w{1,20} in |while ")


def is_command(says: str) -> bool:
    words = _WORD.findall(says[:200])
    while words and (
        words[0] in ("sudo", "time", "timeout", "root", "output", "of", "node", "host", "-n", "-k")
        or words[0].isdigit()
    ):
        words = words[1:]
    name = words[0].rpartition("/")[2] if words else ""
    return bool(words) and (name in PROGRAMS or bool(_LOOP.match(says)))
