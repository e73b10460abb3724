"""Lines of what starts and ends the ranks: Slurm, Kubernetes, torchrun, mpirun, DeepSpeed, clouds.

Source   srun(1), slurmstepd (mgr.c, req.c), torch.distributed.elastic (agent/server/api.py, multiprocessing/api.py),
         deepspeed/launcher/launch.py, mpirun(1) of Open MPI, kubelet's and the scheduler's reasons of events
Units    none
Shape    SHAPES, tried by _log_python.read; marked(event) adds exit codes, ranks, and what is a consequence
Errors   none
"""

from __future__ import annotations

import dataclasses
import re
import signal as signals

from probes.catalog.logs import schedulers
from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.shapes import shape

AT_EXIT = "left process groups"
LAST_WORD = "last word"  # names of such an event, which alone says less than others of its kind
SHAPES = (
    # What torchrun lists before it starts anything: launcher/api.py, "Starting elastic_operator with launch configs"
    *(
        shape(
            "launch",
            word,
            r"(?:^|\]) {1,8}(?P<name>run_id|rdzv_backend|rdzv_endpoint|min_nodes) {1,16}: (?P<value>\S{1,200})\s{0,4}$",
        )
        for word in ("run_id  ", "rdzv_backend  ", "rdzv_endpoint  ", "min_nodes  ")
    ),
    shape(
        "scheduler_kill",
        "DUE TO",
        r"(?:STEP|JOB) (?P<step>[\w.+]{1,40})(?: ON (?P<peer>\S{1,120}))? CANCELLED(?: AT .{1,40}?)? "
        r"DUE TO (?P<name>[A-Z ]{3,60})",
    ),
    shape(
        "scheduler_kill",
        "exceeded",
        r"(?i:\b(?:job|step)\b.{0,60}?\bexceeded (?:its |the )?(?:time ?limit|wall ?(?:clock|time)))",
        name="TIME LIMIT",
    ),
    shape(
        "scheduler_kill",
        "limit",
        r"(?i:(?:\bwall ?(?:clock )?time|\b(?:job|slurm|scheduler|queue)\b.{0,20}?\btime) ?limit"
        r" (?:was |has been |is )?(?:reached|exceeded|hit))",
        name="TIME LIMIT",
    ),
    shape(
        "scheduler_kill",
        "CANCELLED AT",
        r"(?:STEP|JOB) (?P<step>[\w.+]{1,40}) ON (?P<peer>\S{1,120}) (?P<name>CANCELLED)",
    ),
    shape("scheduler_kill", "oom", r"slurmstepd(?!.{0,40}Detected 0 ).{0,80}(?P<name>oom[-_]kill event)"),
    # sacct(1): a row begins with the job's or step's number
    *(
        shape(
            "scheduler_kill",
            word,
            r"^\s{0,8}(?P<step>\d{1,10}(?:[._+][\w+]{1,20})?)[\s|].{0,300}?"
            r"(?P<name>OUT_OF_ME\w{0,5}|NODE_FAIL|PREEMPTED|TIMEOUT|CANCELLED by \d{1,10})\b",
        )
        for word in ("OUT_OF_ME", "NODE_FAIL", "PREEMPTED", "TIMEOUT", "CANCELLED by")
    ),
    shape("scheduler_kill", "memory limit", r"slurmstepd.{0,80}(?P<name>Exceeded (?:step|job) memory limit)"),
    shape(
        "scheduler_kill",
        "srun: error",
        r"srun: error: (?P<peer>\S{1,120}): tasks? (?P<tasks>[\d,-]{1,200}): (?P<name>[\w ]{3,60})",
    ),
    # slurmctld, and `sinfo -R`: reason, user, time, nodes
    shape(
        "scheduler_kill",
        "unexpectedly rebooted",
        r"Node (?:(?P<peer>[A-Za-z][\w.-]{0,62}) )?(?P<name>unexpectedly rebooted)"
        r"(?:\s{1,40}\S{1,32}\s{1,20}\d{4}-\d\d-\d\dT[\d:]{8}\s{1,20}(?P<nodes>\S{1,120}))?",
    ),
    shape("scheduler_kill", "on failed node", r"\b(?P<name>on failed node) (?P<peer>[A-Za-z][\w.-]{0,62})"),
    shape(
        "scheduler_kill",
        "not responding, setting DOWN",
        r"Nodes? (?P<peer>[A-Za-z][\w.-]{0,62}) (?P<name>not responding, setting DOWN)",
    ),
    shape("scheduler_kill", "Node failure", r"srun: error: (?P<name>Node failure) on (?P<peer>\S{1,120})"),
    shape("scheduler_kill", "OOMKilled", r"\b(?P<name>OOMKilled)\b(?!\W{1,6}(?:[Ff]alse|0)\b)"),
    shape("scheduler_kill", "low on resource", r"low on resource: (?P<short_of>[\w-]{1,40})", name="Evicted"),
    shape("scheduler_kill", "Evicted", r"(?:[Rr]eason|[Ss]tatus|Warning)\W{1,20}(?P<name>Evicted)\b"),
    shape("scheduler_kill", "TaintManagerEviction"),
    shape(
        "scheduler_kill",
        "reempt",
        r"(?P<name>Preempted by|Preempted in order|[Pp]reemption notice|is being preempted)",
    ),
    shape("scheduler_kill", "nterruption", r"(?P<name>[Ss]pot (?:[Ii]nstance )?[Ii]nterruption)"),
    shape("scheduler_kill", "node shutdown", r"(?P<name>imminent node shutdown)"),
    # Slurm and munge (munge.h: EMUNGE_CRED_EXPIRED, _REWOUND), MIT Kerberos (KRB5KRB_AP_ERR_SKEW, _TKT_NYV), TLS
    shape("credential", "redential", r"(?P<name>(?:Rewound|Expired) credential)"),
    shape(
        "credential",
        "Invalid job credential",
        r"(?:on node (?P<peer>\S{1,120}): )?(?P<name>Invalid job credential)",
    ),
    # srun names the node that refused to start the step: its munge did not take the credential
    shape(
        "credential",
        "Protocol authentication",
        r"(?:ailed on node|on node) (?P<peer>[A-Za-z][\w.-]{0,62}): (?P<name>Protocol authentication error)",
    ),
    shape("credential", "lock skew too great", name="Clock skew too great"),
    shape("credential", "icket not yet valid", name="Ticket not yet valid"),
    shape("credential", "ertificate is not yet valid", name="certificate is not yet valid"),
    shape("agent_signal", "death signal", r"Received (?:Signals\.)?(?P<name>SIG\w{2,8}|\d{1,2}) death signal"),
    # Megatron-LM with --exit-signal-handler, which then saves and ends
    shape("agent_signal", "exiting program after receiving", r"exiting program after receiving (?P<name>SIG\w{2,8})"),
    shape("agent_signal", "Detected KeyboardInterrupt", name="SIGINT"),  # Lightning
    # A program that is told to end, as it says itself: "received SIGINT, shutting down", "got signal SIGTERM, exiting"
    *(
        shape(
            "agent_signal",
            word,
            rf"(?i:\b(?:received|got|caught)(?: signal)?(?:(?: number)? \d{{1,2}})?:? \(?)(?P<name>{word})\b\)?"
            r"(?=\W{0,4}(?i:.{0,40}?(?:shut|stop|exit|terminat|ending|quit|clean|tear)))",
        )
        for word in ("SIGINT", "SIGTERM")
    ),
    shape("agent_signal", "got signal", r"SignalException: Process (?P<pid>\d{1,9}) got signal: (?P<name>\d{1,2})"),
    shape(
        "ranks_restarted",
        "will restart worker group",
        r"Worker group \w{1,20}\. (?P<left>\d{1,5})/(?P<total>\d{1,5}) attempts left",
    ),
    shape(
        "torchrun_signal",
        "closing signal",
        r"Sending process (?P<pid>\d{1,9}) closing signal (?P<name>SIG\w{2,8})",
        secondary=True,
    ),
    shape("torchrun_signal", "Killing subprocess", r"Killing subprocess (?P<pid>\d{1,9})", secondary=True),
    shape("torchrun_signal", "Job step aborted", secondary=True),
    shape(
        "torchrun_failure",
        "failed (exitcode",
        r"failed \(exitcode: (?P<code>-?\d{1,4})\) local_rank: (?P<local_rank>\d{1,5}) \(pid: (?P<pid>\d{1,9})\)",
    ),
    # The end of the work, in the words of torchrun, DeepSpeed, transformers, Lightning, Megatron, fairseq, own loops
    shape("finished", "successfully finished", r"worker group successfully finished"),
    shape("finished", "exits successfully", r"Process (?P<pid>\d{1,9}) exits successfully"),
    shape("finished", "train_runtime", r"train_runtime['\"]?\s{0,4}[:=]\s{0,4}['\"]?(?P<seconds>\d{1,9})"),
    shape("finished", "stopped: `max_", r"fit` stopped: `max_(?P<name>steps|epochs|time)=\S{1,20} reached"),
    # torch, when the process ends by itself; after an exception as well.
    shape(
        "finished",
        "process",
        r"destroy_process_group\(\) was not called before program exit"
        r"|process group has NOT been destroyed before we destruct",
        name=AT_EXIT,
    ),
    shape("finished", "training is done", r"after training is done"),
    # The last word of a program of one's own; before its steps it is of something else.
    shape("finished", "one", r"(?i:^\W{0,4}(?:rank ?\d{1,5}\W{1,3})?(?:all )?done\W{0,3}$)", name=LAST_WORD),
    shape("finished", "inished", r"(?i:^\W{0,4}(?:rank ?\d{1,5}\W{1,3})?(?:all )?finished\W{0,3}$)", name=LAST_WORD),
    shape("finished", "one training in", r"(?i:done training in) \d"),
    shape(
        "finished",
        "raining ",
        r"(?i:\btraining (?:loop |run |job |script )?(?:is |has |was )?(?:been )?(?:successfully )?"
        r"(?P<name>completed?|finished|done|ended)\b)"
        r"(?! ?(?:for |of |on |in |\W{0,3})(?:epoch|step|iter|batch|phase|stage|fold))"
        r"(?!.{0,60}(?i:error|fail|exception|without))",
    ),
    shape(
        "finished",
        "inished training",
        r"(?i:^\W{0,4}(?:\w{1,12}: )?finished training)(?! ?(?:for |of )?(?:epoch|step|batch))",
    ),
    shape(
        "finished",
        "reached",
        r"(?i:(?:\bmax[_ -]?(?P<name>steps|epochs|iters|iterations|updates)\b.{0,24}\breached\b)"
        r"|(?:\breached (?:the )?max(?:imum)?[_ -]?(?:number of )?(?:steps|epochs|iters|iterations|updates)\b))",
    ),
    shape(
        "finished",
        "ll ",
        r"(?i:\ball (?:\d{1,9} )?(?P<name>steps|epochs|iters|iterations|updates))"
        r" (?:are |were )?(?:finished|done|completed?)\b(?!.{0,60}(?i:error|fail|exception))",
    ),
    shape(
        "finished",
        "xit",
        r"(?i:\b(?:finished|completed|done)\b[^\n]{0,80}\(exit(?: code| status)?[ =:]{0,2}0\))"
        r"|(?i:\b(?:job|training|train\S{0,12}|torchrun|srun|launcher|run)\b.{0,40}?\bexit(?:ed|s)?\b"
        r"(?:[ _=:]{1,2}(?:with|code|status|rc)){0,3}[ =:]{1,3}0\b)(?![.\d])",
    ),
    shape(  # DeepSpeed prints the command, with the place on the node that its launcher gave it
        "torchrun_failure",
        "exits with return code",
        r"(?:--local[_-]rank[= ](?P<local_rank>\d{1,5})\b.{0,2000}?)?exits with return code = (?P<code>-?\d{1,4})",
    ),
    shape(
        "torchrun_failure",
        "terminated with",
        r"[Pp]rocess (?P<about>\d{1,5}) terminated with "
        r"(?:exit code (?P<code>[1-9]\d{0,2})|signal (?P<name>SIG\w{2,8}))",
    ),
    shape(
        "torchrun_failure",
        "mpirun noticed",
        r"process rank (?P<about>\d{1,7}) with PID \d{1,9} on node (?P<peer>\S{1,120}) exited on signal "
        r"(?P<signal>\d{1,2})",
    ),
    # Composer's launcher (composer/cli/launcher.py): the first that it saw end, then how each ended
    shape(
        "torchrun_failure",
        "crashed with exit code",
        r"Rank (?P<about>\d{1,7}) crashed with exit code (?P<code>-?\d{1,4})",
    ),
    # As people and small launchers tell it: "rank 10 (pid 8123) exited with signal 11 (SIGSEGV)"
    *(
        shape(
            "torchrun_failure",
            word,
            rf"(?i:\brank[ =:#]{{0,2}}(?P<about>\d{{1,7}})\b[^\n,;]{{0,60}}?\b{word}\b[^\n,;]{{0,40}}?)"
            r"(?:(?i:signal)[ :=]{1,2}(?P<signal>\d{1,2})\b|(?i:(?:code|status)[ :=]{1,2})(?P<code>-?[1-9]\d{0,2})\b"
            r"|(?P<name>SIG(?:SEGV|KILL|ABRT|BUS|FPE|ILL|TERM))\b)",
        )
        for word in ("exited", "died", "terminated", "killed", "crashed", "ended")
    ),
    *(  # the same where the rank stands in front of the line
        shape(
            "torchrun_failure",
            word,
            rf"^\W{{0,3}}(?:\w{{1,20}} ){{0,2}}(?P<spoken>{word}) (?i:with |by |on )?(?i:exit )?"
            r"(?:(?i:signal)[ :=]{1,2}(?P<signal>\d{1,2})\b|(?i:(?:code|status)[ :=]{1,2})(?P<code>-?[1-9]\d{0,2})\b"
            r"|(?P<name>SIG(?:SEGV|KILL|ABRT|BUS|FPE|ILL|TERM))\b)",
        )
        for word in ("exited", "died", "terminated", "killed", "crashed")
    ),
    # Ray: what a worker's node says of its end (raylet, and ActorDiedError)
    shape(
        "torchrun_failure",
        "Worker exit type: SYSTEM_ERROR",
        r"Worker IP address: (?P<host>[0-9a-f.:]{3,45}) .{0,80}?Worker PID: (?P<pid>\d{1,10}) "
        r"(?P<name>Worker exit type: SYSTEM_ERROR)",
    ),
    # torch.distributed.run and torch/distributed/launcher/api.py, before any rank writes
    shape("launched", "Setting OMP_NUM_THREADS environment variable"),
    shape("launched", "Starting elastic_operator"),
    # OpenBLAS driver/others/blas_server.c, libgomp team.c, LLVM's openmp i18n (34): the system gives no more threads
    shape(
        "threads_refused",
        "pthread_create failed for thread",
        r"blas_thread_init: pthread_create failed for thread \d{1,6} of (?P<name>\d{1,6})",
    ),
    shape("threads_refused", "Thread creation failed", r"libgomp: Thread creation failed", name="libgomp"),
    shape("threads_refused", "resources for OMP thread", r"OMP: Error #34: .{0,80}for OMP thread", name="OMP"),
    *schedulers.SHAPES,
)


def marked(found: LogEvent) -> LogEvent:
    """With exit codes as Python gives them (negative: a signal), the ranks, and whether it is a consequence."""
    if found.kind == "scheduler_kill":  # of no rank, also where it stands in a rank's file
        tasks = _tasks(str(found.more.get("tasks", "")))
        code = _code(found.name) if tasks else None
        return dataclasses.replace(found, rank=None, about=tasks, code=code, secondary=code == -15)
    if found.kind == "agent_signal":
        name = _signal(int(found.name)) if found.name.isdecimal() else found.name
        return dataclasses.replace(found, name=name)
    if found.kind == "torchrun_failure":
        sent = found.more.get("signal")
        if found.code is not None and found.code > 128:  # as a shell tells it: 139
            sent = found.code - 128
        code = -sent if isinstance(sent, int) else found.code
        if code is None and found.name.startswith("SIG"):  # as torch.multiprocessing tells it
            code = -getattr(signals.Signals, found.name, signals.SIGKILL)
        about = found.about or ((found.rank,) if "spoken" in found.more and found.rank is not None else ())
        return dataclasses.replace(found, rank=None, about=about, code=code, secondary=code == -15)
    return found


_WORDS = {"Killed": -9, "Segmentation fault": -11, "Aborted": -6, "Bus error": -7, "Terminated": -15,
    "Illegal instruction": -4, "Floating point exception": -8, "Interrupt": -2}  # fmt: skip


def _code(name: str) -> int | None:
    """What srun says of a task's end: a signal in words, or "Exited with exit code 1"."""
    number = re.search(r"exit code (\d{1,3})", name)
    return int(number[1]) if number else next((code for word, code in _WORDS.items() if name.startswith(word)), None)


def _signal(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _tasks(text: str) -> tuple[int, ...]:
    """`0,3-5` as numbers, 64 at most: with srun a task's number is its rank."""
    found: list[int] = []
    for part in text.split(",")[:64]:
        ends = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part)
        if ends:
            found += range(int(ends[1]), min(int(ends[2] or ends[1]), int(ends[1]) + 63) + 1)
    return tuple(found[:64])
