"""What is remembered. One module per noun; this package is the one place to import models from."""

from incidents.models.fleet import HostKey, Node
from incidents.models.people import SignInToken, User
from incidents.models.runs import NodeVisit, Reading, Shard, SuiteRun

__all__ = ["HostKey", "Node", "NodeVisit", "Reading", "Shard", "SignInToken", "SuiteRun", "User"]
