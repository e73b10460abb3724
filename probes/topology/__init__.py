"""The fabric as it should be against the fabric as it was seen. Pure: readings come in, states and sentences go out.

expected   the ports that must be there, and how they are stored
learning   an expected topology out of readings
states     one of five states for each expected port
pattern    what the states have in common, in one sentence
layout     rows and columns of the rail matrix, from the links
"""

from probes.topology.expected import ExpectedPort, FormError, Topology
from probes.topology.learning import Learned, learn, rails_of
from probes.topology.pattern import Pattern, pattern_of
from probes.topology.states import STATES, Answer, PortState, View, compare

__all__ = [
    "STATES", "Answer", "ExpectedPort", "FormError", "Learned", "Pattern", "PortState", "Topology", "View", "compare",
    "learn", "pattern_of", "rails_of",
]  # fmt: skip
