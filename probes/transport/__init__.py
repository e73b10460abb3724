"""Three ways to get captures: ssh (nodes), local (this machine), replay (a folder). All yield the same thing."""

from probes.transport import local, replay, ssh
from probes.transport.plan import Plan
from probes.transport.reasons import REASONS
from probes.transport.targets import NodeEnd, Settings, Target

__all__ = ["REASONS", "NodeEnd", "Plan", "Settings", "Target", "local", "replay", "ssh"]
