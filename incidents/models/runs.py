"""One asking of many nodes: the run, its shards (who is asking now), and what came back."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Max, Q
from django.db.models.functions import Coalesce

from incidents.models.fleet import Fleet, Node
from incidents.models.incident import Incident
from probes.core import OUTCOMES

FILES = "files"  # the run that reads files which people brought; it asks no node
VERIFY = "verify"  # the suite that tells whether training advances


class SuiteRun(models.Model):
    """One suite asked of a list of nodes. Finished when each of its shards is."""

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="runs")
    suite = models.CharField(max_length=60)
    incident = models.ForeignKey(
        Incident, on_delete=models.PROTECT, null=True, related_name="runs", help_text="none: a check of the fleet"
    )
    started_at = models.DateTimeField()
    started_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    finished_at = models.DateTimeField(null=True)
    node_count = models.PositiveIntegerField()

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.suite} of {self.node_count} nodes, run {self.pk}"


class Shard(models.Model):
    """About 64 nodes of a run, asked by one worker at a time.

    A worker holds the lease and renews it. `token` grows with each claim: what comes from a worker with an older token
    is refused, so that one which was thought dead and is not cannot write any more.
    """

    run = models.ForeignKey(SuiteRun, on_delete=models.CASCADE, related_name="shards")
    number = models.PositiveIntegerField()
    nodes = models.ManyToManyField(Node, related_name="+")
    token = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True)
    queued_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["run", "number"]
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="shard_once_per_run")]
        indexes = [models.Index(fields=["lease_until"], condition=Q(finished_at=None), name="shard_open")]

    def __str__(self) -> str:
        return f"shard {self.number} of {self.run}"


class NodeVisit(models.Model):
    """How one node was reached in one run. `reason` is "" or a word of probes.transport.REASONS; times in seconds."""

    run = models.ForeignKey(SuiteRun, on_delete=models.CASCADE, related_name="visits")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="visits")
    at = models.DateTimeField()
    reason = models.CharField(max_length=40, blank=True)
    detail = models.TextField(blank=True, help_text="what the other side said")
    took_s = models.FloatField()
    connect_s = models.FloatField()
    tries = models.PositiveIntegerField()
    python = models.CharField(max_length=20, blank=True)
    reached = models.CharField(max_length=320, blank=True, help_text="user@host:port that was tried")

    class Meta:
        ordering = ["run", "node__name"]
        constraints = [models.UniqueConstraint(fields=["run", "node"], name="visit_once_per_run")]

    def __str__(self) -> str:
        return f"{self.node} in run {self.run_id}: {self.reason or 'answered'}"

    def without_nodes_words(self, why: str) -> NodeVisit:
        """The same visit without any text that came from the node."""
        kept = {"run_id": self.run_id, "node_id": self.node_id, "at": self.at, "tries": self.tries}
        return NodeVisit(**kept, reason=self.reason, detail=why, took_s=self.took_s, connect_s=self.connect_s)


SCAN = "scan"  # the suite that looks for a job on the whole fleet


class ReadingQuerySet(models.QuerySet["Reading"]):
    """Reads that several parts make of readings."""

    def best(self) -> ReadingQuerySet:
        """Of every node and probe the latest that answered, else the latest, without what it printed.

        A later look that failed takes nothing away from what an earlier one saw.
        """
        each = self.order_by().values("node_id", "probe")
        best = each.annotate(best=Coalesce(Max("id", filter=Q(outcome="ok")), Max("id"))).values("best")
        return ReadingQuerySet(self.model, using=self.db).filter(pk__in=best).defer("out", "err")

    def of_files(self, incident: Incident, until: int) -> ReadingQuerySet:
        """What the files of an incident told, up to the reading `until`: of the last run that read them all."""
        mine = self.filter(run__incident=incident, run__suite=FILES, pk__lte=until)
        last = mine.order_by().aggregate(last=Max("run_id"))["last"]
        return mine.filter(run=last).defer("out", "err")

    def evidence(self, incident: Incident, until: int) -> ReadingQuerySet:
        """The best readings of an incident up to the reading `until`, which a ranking names as its last."""
        # Not what a look at the whole fleet for the job saw on nodes that are not the job's.
        mine = self.filter(run__incident=incident, pk__lte=until, node__in=incident.nodes.all())
        return mine.exclude(run__suite=SCAN).best()


class Reading(models.Model):
    """The stored facts or failure of one probe on one node in one run, or of one file that people brought.

    A reading of a file has no node of the fleet: `file` is the file, `said_node` the node that it tells of, "" where
    nothing says so.

    `out` is the raw output, capped by the probe and compressed with zlib; `sha256` is of the uncompressed bytes.
    """

    run = models.ForeignKey(SuiteRun, on_delete=models.CASCADE, related_name="readings")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, null=True, related_name="readings")
    file = models.CharField(max_length=1000, blank=True)
    said_node = models.CharField(max_length=253, blank=True)
    probe = models.CharField(max_length=60)
    outcome = models.CharField(max_length=12, choices=[(word, word) for word in OUTCOMES])
    reason = models.CharField(max_length=40, blank=True)
    why = models.TextField(blank=True)
    facts = models.JSONField(null=True)
    findings = models.JSONField(default=list)
    out = models.BinaryField()
    sha256 = models.CharField(max_length=64)
    truncated = models.BooleanField(default=False)
    err = models.TextField(blank=True)
    node_at = models.FloatField(null=True, help_text="the node's own clock, seconds since the epoch")
    node_mono = models.FloatField(null=True, help_text="the node's monotonic clock, seconds")
    boot_id = models.CharField(max_length=64, blank=True)
    state = models.CharField(max_length=8, blank=True)
    wchan = models.CharField(max_length=128, blank=True)
    took_s = models.FloatField()
    recorded_at = models.DateTimeField()

    objects = ReadingQuerySet.as_manager()

    class Meta:
        ordering = ["run", "node__name", "probe"]
        constraints = [
            models.UniqueConstraint(fields=["run", "node", "probe"], name="reading_once_per_run"),
            models.CheckConstraint(condition=Q(outcome__in=OUTCOMES), name="reading_outcome_known"),
        ]

    @property
    def node_name(self) -> str:
        """The node that it tells of, "" where a file does not say."""
        return self.node.name if self.node is not None else self.said_node

    @property
    def ref(self) -> str:
        """How claims name it: "node/probe", or the file."""
        return self.file or f"{self.node_name}/{self.probe}"

    def __str__(self) -> str:
        return f"{self.probe} of {self.file or self.node} in run {self.run_id}: {self.outcome}"

    def without_nodes_words(self, why: str) -> Reading:
        """A failed reading in its place, with the raw output but without any text that came from the node."""
        kept = {"run_id": self.run_id, "node_id": self.node_id, "probe": self.probe, "recorded_at": self.recorded_at}
        return Reading(**kept, outcome="failed", why=why, out=self.out, sha256=self.sha256, took_s=self.took_s)
