"""Words that begin a command: what people type while they look for a fault.

Shape    is_command(line) -> whether a line is a command that somebody typed
Errors   none
"""

from __future__ import annotations

import re

PROGRAMS = frozenset((
    "addr2line", "all_reduce_perf", "amd-smi", "ansible", "apptainer", "arp", "arping", "atop", "awk",
    "bandwidthTest", "bash", "blkid", "bpftrace", "bridge", "calicoctl", "cat", "cgget", "cgroups", "chronyc",
    "chrt", "cilium", "clush", "compute-sanitizer", "conda", "coredumpctl", "cpupower", "crash", "crictl",
    "ctr", "cuda-gdb", "cuda-memcheck", "curl", "cut", "cyclictest", "date", "dcb", "dcgm-exporter", "dcgmi",
    "df", "diff", "dig", "dmesg", "dmidecode", "docker", "dpkg", "dsh", "dstat", "du", "echo", "egrep",
    "enroot", "env", "etcdctl", "ethtool", "eu-stack", "export", "fabricmanager", "fgrep", "fi_info", "file",
    "find", "findmnt", "firewall-cmd", "fping", "free", "fuser", "gdb", "getent", "glances", "gpud", "gpustat",
    "grep", "gstack", "head", "helm", "hostname", "hping3", "htop", "hwloc-bind", "hwloc-ls", "ib_read_bw",
    "ib_send_bw", "ib_write_bw", "ibdev2netdev", "ibdiagnet", "iblinkinfo", "ibnetdiscover", "ibping",
    "ibportstate", "devlink",
    "ibqueryerrors", "ibstat", "ibstatus", "ibv_devinfo", "ifconfig", "iostat", "iotop", "ip", "iperf",
    "iperf3", "ipmitool", "iptables", "iptables-save", "irqbalance", "journalctl", "kdump", "kubectl", "last",
    "lctl", "ldd", "lfs", "lldptool", "ls", "lsblk", "lscpu", "lsmod", "lsof", "lspci", "lstart", "lstopo",
    "md5sum", "mlnx_qos", "mlxlink", "mount", "mpirun", "mpstat", "mstlink", "mtr", "nc", "ncat", "ncclras",
    "ncu", "nerdctl", "netstat", "nfsiostat", "nfsstat", "nft", "nm", "nmap", "nproc", "nsenter", "nslookup",
    "nstat", "nsys", "ntpq", "numactl", "numastat", "nv-fabricmanager", "nv-hostengine", "nvbandwidth",
    "nvidia-bug-report.sh", "nvidia-smi", "nvsm", "nvtop", "oc", "offcputime", "opensm",
    "p2pBandwidthLatencyTest", "parallel-ssh", "pdcp", "pdsh", "perf", "perfquery", "pgrep", "pidof", "pidstat",
    "ping", "pip", "pmap", "podman", "printenv", "prlimit", "ps", "psh", "pssh", "pstack", "pstree", "py-spy",
    "pystack", "python", "python3", "rdma", "rdmatool", "readlink", "rocm-smi", "route", "rpm", "rsh",
    "runqlat", "rvs", "sacct", "sadf", "salt", "sar", "sattach", "sbatch", "schedtool", "scontrol", "sed",
    "seff", "sensors", "sh", "sha256sum", "show_counters", "show_gids", "sinfo", "singularity", "sleep",
    "sminfo", "sort", "sos", "sprio", "squeue", "sreport", "srun", "ss", "ssh", "sstat", "stat", "strace",
    "stress-ng", "sysctl", "systemctl", "systemd-cgls", "systemd-cgtop", "tail", "taskset", "tc", "tcpdump",
    "telnet", "timedatectl", "tload", "top", "torchrun", "tr", "tracepath", "traceroute", "tshark", "tuned-adm",
    "turbostat", "ucx_info", "ufw", "ulimit", "uname", "uptime", "vmstat", "w", "watch", "wc", "wget", "who",
    "xdsh", "zcat", "zgrep",
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


def asks_there(says: str) -> bool:
    """Whether a heading tells after its first word what was asked there: a command, or files of the kernel."""
    rest = says.partition(" ")[2].strip()
    return is_command(rest) or rest.startswith(("/proc/", "/sys/"))
