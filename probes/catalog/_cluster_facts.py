"""What a cluster says of its pods and nodes, in one form whatever tool printed it, and which of it ends a job.

Source   reasons of events: kubernetes pkg/kubelet/events/event.go, pkg/controller/nodelifecycle, pkg/scheduler,
         pkg/kubelet/eviction/helpers.go (messages), pkg/kubelet/nodeshutdown; node-problem-detector (OOMKilling,
         ReadonlyFilesystem); node termination handlers of AWS, GCP and Azure; Karpenter; Kueue (Preempted)
Shape    Cluster: pods with their nodes, happenings with a meaning
Errors   none
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from probes.core import clean

MOST = 20_000


@dataclass(frozen=True, slots=True)
class Pod:
    name: str
    space: str = ""  # its namespace
    node: str = ""
    gpus: bool = False  # asks for GPUs
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class Happening:
    """`what`: of MEANINGS' words. `name` of a pod, node or job, by `kind` in lower case; `node` where it is told with
    it. `at` in seconds since the epoch, None where only an age is printed."""

    what: str
    kind: str
    name: str
    text: str
    node: str = ""
    at: float | None = None
    space: str = ""
    stamp: str = ""  # the time as printed, where it has no zone
    age_s: float | None = None  # how long ago, where only that is printed


@dataclass(frozen=True, slots=True)
class Cluster:
    pods: tuple[Pod, ...]
    happenings: tuple[Happening, ...]
    unready: tuple[str, ...] = ()  # nodes that do not answer
    jobs: tuple[str, ...] = ()  # numbers of all jobs that are listed


# (word of the reason, word of the message, what it means); the first that fits counts. "" fits all.
MEANINGS: tuple[tuple[re.Pattern[str], re.Pattern[str], str], ...] = tuple(
    (re.compile(reason), re.compile(message), what)
    for reason, message, what in (
        ("FailedScheduling|^Scheduled$|Pulled|Created$|Nominated", "", "everyday"),
        ("OOMKilled|OOMKilling|SystemOOM|OUT_OF_MEMORY", "", "oom"),
        ("^NODE_FAIL$", "", "node fail"),
        ("^PREEMPTED$", "", "preempted"),
        ("^(?:TIMEOUT|DEADLINE)$", "", "deadline"),
        ("^CANCELLED$", "", "suspended"),
        (
            "",
            r"low on resource: ?\[?memory|reclaim memory|[Cc]ontainer \S{1,80} exceeded its memory|\[MemoryPressure",
            "memory",
        ),
        ("", r"EmptyDir volume \"[^\"]{0,60}shm[^\"]{0,60}\" exceeds", "shm"),
        (
            "",
            r"low on resource: ?\[?(?:ephemeral-storage|nodefs|imagefs|containerfs|inodes|DiskPressure)|\[DiskPressure"
            r"|ephemeral local storage usage exceeds|ephemeral-storage usage exceeds"
            r"|EmptyDir volume \"[^\"]{1,80}\" exceeds",
            "disk",
        ),
        ("", r"low on resource: ?\[?pids?|\[PIDPressure", "everyday"),
        ("NodeHasDiskPressure|FreeDiskSpaceFailed|KubeletHasDiskPressure", "", "disk pressure"),
        ("EvictionThresholdMet", "ephemeral-storage|nodefs|imagefs|inodes", "disk pressure"),
        ("FilesystemIsReadOnly|ReadonlyFilesystem", "", "read-only"),
        ("Rebooted$", "", "lost"),
        (
            "PreemptScheduled|TerminateScheduled|RebootScheduled|RedeployScheduled|SpotInterrupt|SpotITN"
            "|InstanceTerminat|InstanceStopp|TerminationByKubelet|NodeShutdown|NodeTermination",
            "",
            "lost",
        ),
        (
            "Shutdown$|Terminated$|DeletingNode|NodeDeleted|DeletionByPodGC",
            "shut(?:ting )?down|does not exist|no longer exists|terminated",
            "lost",
        ),
        (
            "",
            r"has been rebooted, boot id|imminent node shutdown|[Nn]ode is shutting"
            r"|does not exist in the cloud provider|node no longer exists|instance termination notice"
            r"|[Ss]pot (?:instance )?interruption",
            "lost",
        ),
        ("Preempted|Preempting|EvictedDueToPreempted|PreemptionByScheduler", "", "preempted"),
        ("^Evict(?:ed)?$", r"because of (?:preempt|reclaim)", "preempted"),  # Volcano
        ("", r"Preempted by|Preempted to accommodate|Preempted in order|preempted by a higher", "preempted"),
        ("TaintManagerEviction|DeletionByTaintManager|NodeControllerEviction", "", "tainted"),
        ("^Error$", r"exit code (?!0\b|143\b|130\b)\d{1,3}\b", "failed"),  # 128 + SIGTERM or SIGINT: somebody ended it
        ("DeadlineExceeded", "", "deadline"),
        ("", "active longer than specified deadline", "deadline"),  # a job's condition, whatever its reason is called
        ("Suspended|JobSuspended", "", "suspended"),
        ("EvictionByEvictionAPI|^Evicted$|ScaleDown", "", "evicted"),
    )
)
EVERYDAY = "everyday"
# A kernel's victim that no training uses: told by node-problem-detector as "Killed process 812 (fluent-bit)".
_VICTIM = re.compile(r"(?:Killed process \d{1,10} \(|victim process: )([\w.:+-]{1,40})")
TRAINS = ("python", "pt_", "torchrun", "deepspeed", "accelerate", "train", "ray::", "mpirun")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)")
_DESCRIBED = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}")


def meaning(reason: str, message: str) -> str:
    """What an event means for a job."""
    for word, said, what in MEANINGS:
        if (not word.pattern or word.search(reason)) and (not said.pattern or said.search(message)):
            victim = _VICTIM.search(message)
            return EVERYDAY if what == "oom" and victim and not victim[1].startswith(TRAINS) else what
    return EVERYDAY


_AGE = re.compile(r"(?<![\w.])((?:\d{1,5}[ydhms]){1,3})(?![\w])")
_PART = re.compile(r"(\d{1,5})([ydhms])")
_SECONDS = {"y": 31_536_000.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def age(text: str) -> float | None:
    """The first age in a row, as kubectl prints it: `6m22s`, `41d`, `3h5m (x3 over 5h)`."""
    found = _AGE.search(text[:400])
    return sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(found[1])) if found else None


def moment(text: str) -> float | None:
    """RFC 3339, or what `kubectl describe` prints."""
    try:
        if found := _TIME.search(text):
            whole = re.sub(r"\.\d{1,9}", "", found[0]).replace("Z", "+00:00")
            return datetime.fromisoformat(whole).timestamp()
        if found := _DESCRIBED.search(text):
            return datetime.strptime(found[0], "%a, %d %b %Y %H:%M:%S %z").timestamp()
    except ValueError:
        pass
    return None


class Gathered:
    """Collects pods and happenings, each once."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], Pod] = {}
        self.happenings: dict[tuple[str, str, str], Happening] = {}
        self.unready: dict[str, None] = {}
        self.jobs: dict[str, None] = {}
        self.rows = 0

    def pod(self, name: str, space: str = "", node: str = "", gpus: bool = False, age_s: float | None = None) -> None:
        self.rows += 1
        name, node = clean(name)[:120], clean(node)[:120]
        if not name or node in ("<none>", "None", "null"):
            node = ""
        there = self.pods.get((space, name)) or Pod(name, space)
        if name and len(self.pods) < MOST:
            self.pods[space, name] = Pod(
                name, space, there.node or node, there.gpus or gpus, there.age_s if age_s is None else age_s
            )

    def event(
        self,
        kind: str,
        name: str,
        reason: str,
        message: str,
        node: str = "",
        at: float | None = None,
        space: str = "",
        stamp: str = "",
        age_s: float | None = None,
    ) -> None:
        self.rows += 1
        if kind == "job" and len(self.jobs) < MOST:
            self.jobs.setdefault(clean(name)[:120])
        if reason.endswith("Resumed"):
            self.happenings.pop(("suspended", name, node), None)
        what = meaning(reason, message)
        if what == EVERYDAY or len(self.happenings) >= MOST:
            return
        text = clean(f"{reason} {kind}/{name}: {message}".replace(" /:", ":"))[:300]
        key = (what, name, node)
        there = self.happenings.get(key)
        if there is None or (there.at is None and at is not None):
            self.happenings[key] = Happening(
                what, kind.lower(), clean(name)[:120], text, clean(node)[:120], at, space, stamp[:40], age_s
            )

    def told(self) -> Cluster:
        return Cluster(
            tuple(self.pods.values()), tuple(self.happenings.values()), tuple(self.unready), tuple(self.jobs)
        )
