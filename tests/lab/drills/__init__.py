"""Makes the recordings of the drills in probes/drills/: clusters that do not exist, in the forms that real tools print.

    python -m tests.lab.drills port-down-64        # writes the folder again, byte for byte the same

The forms are those of the recorded outputs in tests/fixtures/; ids, counters, times and the ranks' places are drawn
from one seed per drill, so that no two nodes are alike. What is said of a fault is what the field's own sources say
(each module names them). None of it was recorded on such a cluster, and each drill.toml says so.
"""
