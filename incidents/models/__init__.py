"""What is remembered. One module per noun; this package is the one place to import models from."""

from incidents.models.actions import Action
from incidents.models.alerts import Alert, AlertDelivery, AlertSource
from incidents.models.diagnosis import Decision, Ranking
from incidents.models.files import Upload, UploadedFile, UploadedPart
from incidents.models.fleet import Fleet, HostKey, Node
from incidents.models.incident import Incident, Job, Phase
from incidents.models.people import Membership, SignInToken, User
from incidents.models.runbooks import RunbookRun
from incidents.models.runs import NodeVisit, Reading, Shard, SuiteRun
from incidents.models.timeline import Event
from incidents.models.topology import ExpectedTopology

__all__ = [
    "Action",
    "Alert",
    "AlertDelivery",
    "AlertSource",
    "Decision",
    "Event",
    "ExpectedTopology",
    "Fleet",
    "HostKey",
    "Incident",
    "Job",
    "Membership",
    "Node",
    "NodeVisit",
    "Phase",
    "Ranking",
    "Reading",
    "RunbookRun",
    "Shard",
    "SignInToken",
    "SuiteRun",
    "Upload",
    "UploadedFile",
    "UploadedPart",
    "User",
]
