"""Lines of schedulers and of guards of memory: Ray, LSF, PBS, systemd and earlyoom. Slurm's and Kubernetes' are in
_log_launchers.py.

Source   ray (src/ray/raylet/node_manager.cc, worker_killing_policy; ray.exceptions.OutOfMemoryError); LSF 10.1,
         "Termination reasons displayed by bacct, bhist, and bjobs"; OpenPBS (src/resmom, job killed: ...); systemd
         (core/unit.c, oom/oomd-util.c); earlyoom (kill.c)
Units    none
Shape    SHAPES, part of _log_launchers.SHAPES
Errors   none
"""

from __future__ import annotations

from probes.catalog.logs.shapes import shape

KILLED = "OOMKilled"  # by whatever guards memory
# Units in which a job runs; any other unit of the node is none of it.
_OF_JOBS = (
    r"[^\n]{0,160}?(?:slurm|step_|job_|kubepods|docker-|cri-|libpod|torch|train|pbs|lsf"
    r"|tmux|screen|byobu|session-\w{1,12}\.scope|run-\w{1,40}\.(?:scope|service)|vte-spawn)[^\n]{0,160}?"  # of a shell
)
SHAPES = (
    # What a time service found, and corrected or not: chrony (reference.c), ntpd (ntp_loopfilter.c), etcd (rafthttp)
    shape(
        "clock_wrong",
        "System clock wrong by",
        r"(?:^|\s)(?:(?P<peer>[\w.-]{1,80}) chronyd\[\d{1,9}\]: )?System clock wrong by "
        r"(?P<seconds>-?\d{1,12}(?:\.\d{1,9})?) seconds",
    ),
    shape(
        "clock_wrong",
        "time reset",
        r"(?:^|\s)(?P<peer>[\w.-]{1,80}) ntpd\[\d{1,9}\]: .{0,60}?time reset (?P<seconds>[+-]?\d{1,12}\.\d{1,9}) ?s",
    ),
    shape("clock_wrong", "clock drift", r"high clock drift.{0,300}?clock-drift\W{1,6}(?P<span>[\dhms.]{2,24})"),
    shape(
        "clock_wrong",
        "clock difference",
        r"clock difference against peer (?P<member>\w{1,40}) is too high \[(?P<span>[\dhms.]{2,24}) > ",
    ),
    shape(
        "scheduler_kill",
        "memory pressure (OOM)",
        r"(?<!\d)[1-9]\d{0,6} Workers \(tasks / actors\) killed due to memory pressure \(OOM\)"
        r"(?:.{0,160}?IP: (?P<peer>[0-9a-f.:]{3,45})\))?",
        name=KILLED,
    ),
    shape(
        "scheduler_kill",
        "Memory on the node (IP",
        r"Memory on the node \(IP: (?P<peer>[0-9a-f.:]{3,45}), .{0,400}? was (?P<used>[\d.]{1,12}GB) / ",
        name=KILLED,
    ),
    shape("scheduler_kill", "NODE_OUT_OF_MEMORY", name=KILLED),
    # kubelet's own log (pkg/kubelet/eviction/eviction_manager.go)
    shape(
        "scheduler_kill",
        "must evict pod(s) to reclaim",
        r"(?:(?P<peer>[\w.-]{1,80}) kubelet\[\d{1,9}\]: .{0,120}?)?must evict pod\(s\) to reclaim\W{1,4}resourceName="
        r"\W?(?P<short_of>memory|ephemeral-storage|inodes)",
        name="Evicted",
    ),
    shape(
        "scheduler_kill",
        "attempting to reclaim",
        r"(?:(?P<peer>[\w.-]{1,80}) kubelet\[\d{1,9}\]: .{0,120}?)?attempting to reclaim\W{1,4}resourceName="
        r"\W?(?P<short_of>ephemeral-storage|inodes)",
        name="DiskPressure",
    ),
    # docker events, podman events; AWS Batch's reason
    shape("scheduler_kill", "container oom", r"\bcontainer oom [0-9a-f]{12,64}\b", name=KILLED),
    shape("scheduler_kill", "Container killed due to memory usage", name=KILLED),
    # aws-node-termination-handler
    shape(
        "scheduler_kill",
        "SPOT_ITN",
        r"Kind:SPOT_ITN\b(?:.{0,400}?NodeName:(?P<peer>[\w.-]{1,120}))?",
        name="taken away",
    ),
    # What kubectl says when somebody deletes a job
    shape(
        "scheduler_kill",
        " deleted",
        r"\b(?:pytorchjob|mpijob|trainjob|rayjob|jobset|job|vcjob)[\w.]{0,40}(?:/| \")[\w.-]{1,80}\"? deleted",
        name="CANCELLED",
    ),
    shape("scheduler_kill", "TERM_MEMLIMIT", name=KILLED),
    shape("scheduler_kill", "TERM_SWAP", r"\bTERM_SWAP(?:LIMIT)?\b", name=KILLED),
    # Ray: JobInfo of a job that was stopped (dashboard/modules/job/common.py)
    shape("scheduler_kill", "ntentionally stopped", r"Job was intentionally stopped", name="CANCELLED"),
    # Slurm's mail, HTCondor's log of a job (condor_rm, eviction), Grid Engine's qacct
    shape(
        "scheduler_kill",
        "Job_id=",
        r"Slurm .{0,20}Job_id=(?P<step>\S{1,40}) .{0,400}, "
        r"(?P<name>TIMEOUT|CANCELLED|PREEMPTED|NODE_FAIL|OUT_OF_MEMORY)\b",
    ),
    shape("scheduler_kill", "condor_rm", r"\bvia condor_rm\b", name="CANCELLED"),
    shape("scheduler_kill", "Job was evicted", r"^004 \(.{1,60} Job was evicted", name="PREEMPTED"),
    shape("scheduler_kill", "deleted_by", r"^deleted_by {1,20}(?!NONE\b)\w", name="CANCELLED"),
    # Kubernetes' jobs and Kubeflow's: activeDeadlineSeconds
    shape("scheduler_kill", "active longer than specified deadline", name="TIME LIMIT"),
    # Flux (flux-job(1)): the exception that ended it
    shape("scheduler_kill", "type=cancel", r"exception\W{1,4}type=cancel\b", name="CANCELLED"),
    shape("scheduler_kill", "type=timeout", r"exception\W{1,4}type=timeout\b", name="TIME LIMIT"),
    # Lightning (connectors/signal_connector.py) and submitit (core/job_environment.py), told by Slurm before its limit
    shape("scheduler_kill", "equ", r"(?i:\brequeu?ing job \d|\brequeued slurm job)", name="JOB REQUEUE"),
    shape(
        "scheduler_kill",
        "this job is timed-out",
        r"Caught signal SIG\w{2,8} on \S{1,120}: this job is",
        name="TIME LIMIT",
    ),
    shape(
        "scheduler_kill",
        "this job is preempted",
        r"Caught signal SIG\w{2,8} on \S{1,120}: this job is",
        name="PREEMPTED",
    ),
    # Services of clouds and trackers of experiments
    *(
        shape(
            "scheduler_kill",
            word,
            r"(?i:\bcancell?ation request(?:ed)? (?:received )?(?:from|by) (?:the )?user"
            r"|\b(?:cancell?ed|aborted|stopped|killed|terminated) by "
            r"(?:(?:the )?(?:user|owner|operator|admin\w{0,10})\b"
            r"|uid \d{1,10}\b|root\b)"
            r"|\b(?:job|run|experiment|workload|trial) (?:was |has been |is |got )?(?:manually )?cancell?ed\b)",
            name="CANCELLED",
        )
        for word in ("ancel", "ANCEL", "by user", "by the user")
    ),
    shape("scheduler_kill", "TERM_RUNLIMIT", name="TIME LIMIT"),
    shape("scheduler_kill", "TERM_DEADLINE", name="TIME LIMIT"),
    shape("scheduler_kill", "TERM_WINDOW", name="TIME LIMIT"),
    shape("scheduler_kill", "TERM_CPULIMIT", name="TIME LIMIT"),
    shape("scheduler_kill", "TERM_PREEMPT", name="PREEMPTED"),
    *(
        shape("scheduler_kill", word, name="CANCELLED")
        for word in ("TERM_OWNER", "TERM_ADMIN", "TERM_FORCE_OWNER", "TERM_FORCE_ADMIN", "TERM_BUCKET_KILL")
    ),
    shape("scheduler_kill", "TERM_REQUEUE_", r"\bTERM_REQUEUE_(?:OWNER|ADMIN)\b", name="JOB REQUEUE"),
    shape(
        "scheduler_kill", "TERM_R", r"\bTERM_(?:REQUEUE_)?RC(?:_RECLAIM)?\b", name="taken away"
    ),  # reclaimed by the cloud
    shape(
        "scheduler_kill", "PBS: job killed", r"PBS: job killed: (?:v?p?mem|pvmem) .{1,60}exceeded limit", name=KILLED
    ),
    shape(
        "scheduler_kill", "PBS: job killed", r"PBS: job killed: (?:walltime|p?cput) .{1,40}exceeded", name="TIME LIMIT"
    ),
    shape(
        "scheduler_kill",
        "PBS: job killed",
        r"PBS: job killed: node \d{1,6} \((?P<peer>[\w.-]{1,80})\) requested job (?:terminate|die)",
        name="taken away",
    ),
    shape(
        "scheduler_kill",
        "OOM killer",
        rf"(?:^|(?:^|\s)(?P<peer>[\w.-]{{1,80}}) )systemd\[\d{{1,9}}\]: {_OF_JOBS}"
        r"process of this unit has been killed by the OOM killer",
        name=KILLED,
    ),
    shape(
        "scheduler_kill",
        "due to memory ",
        rf"(?:^|(?:^|\s)(?P<peer>[\w.-]{{1,80}}) )systemd-oomd(?:\[\d{{1,9}}\])?: Killed {_OF_JOBS} "
        r"due to memory (?:pressure|used)",
        name=KILLED,
    ),
    shape(
        "scheduler_kill",
        "systemd-oomd killed ",
        rf"(?:^|(?:^|\s)(?P<peer>[\w.-]{{1,80}}) )systemd(?:\[\d{{1,9}}\])?: {_OF_JOBS}: "
        r"systemd-oomd killed (?!0 )\d{1,6} process",
        name=KILLED,
    ),
    shape(
        "scheduler_kill",
        "oom-kill",
        rf"(?:^|(?:^|\s)(?P<peer>[\w.-]{{1,80}}) )systemd(?:\[\d{{1,9}}\])?: {_OF_JOBS}: "
        r"Failed with result '?oom-kill",
        name=KILLED,
    ),
    shape(
        "scheduler_kill",
        "sending SIG",
        r"(?:^|\s)(?P<peer>[\w.-]{1,80}) earlyoom\[\d{1,9}\]: sending SIG(?:TERM|KILL) to process \d{1,9}"
        r'.{0,40}?"(?:python|pt_|torchrun|deepspeed|train)',
        name=KILLED,
    ),
)
