"""What is remembered. One module per noun; this package is the one place to import models from."""

from incidents.models.alerts import Alert, AlertDelivery, AlertSource
from incidents.models.diagnosis import Decision, Ranking
from incidents.models.fleet import Fleet, HostKey, Node
from incidents.models.incident import Incident, Job, Phase
from incidents.models.people import Membership, SignInToken, User
from incidents.models.runs import NodeVisit, Reading, Shard, SuiteRun
from incidents.models.timeline import Event

__all__ = [
    "Alert",
    "AlertDelivery",
    "AlertSource",
    "Decision",
    "Event",
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
    "Shard",
    "SignInToken",
    "SuiteRun",
    "User",
]
