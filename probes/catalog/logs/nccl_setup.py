"""Lines of NCCL 2.4 to 2.30 (and RCCL) that are no errors: set-up, rings and trees, links, networks, settings, calls.

Source   NCCL: init.cc, bootstrap.cc, transport/{net_ib,net_socket}.cc, graph/{connect,paths}.cc, param.cc, enqueue.cc
Units    none; opCount is hexadecimal; mtu is the enumeration of verbs: 1 to 5 are 256, 512, 1024, 2048, 4096 bytes
Shape    SHAPES, tried by _log_nccl.read
Errors   none
"""

from __future__ import annotations

from probes.catalog.logs.shapes import shape

_COMM = (
    r"comm (?P<comm>0x[0-9a-fA-F]{1,16}|\(nil\)) rank (?P<comm_rank>\d{1,7}) n[rR]anks (?P<ranks>\d{1,7})"
    r"(?: cudaDev (?P<cuda>-?\d{1,4}))?(?: nvmlDev (?P<nvml>-?\d{1,4}))?(?: busId (?P<bus>[0-9a-f]{1,16}))?"
    r"(?: commId (?P<group>0x[0-9a-f]{1,16}))?"
)

_TEST_ROW = (
    r"^ {0,16}(?P<bytes>\d{1,15}) {1,16}\d{1,15} {1,12}(?:float|half|bfloat16) {1,8}(?:\w{2,8} {1,8})?"
    r"(?:-?\d{1,6} {1,8})?\d{1,12}(?:\.\d{1,4})? {1,8}\d{1,6}\.\d{1,4} {1,8}(?P<busbw>\d{1,6}\.\d{1,4}) "
)

# Also written as a warning: tried before those. graph/xml.cc, graph/topo.cc
TOPOLOGY_FILE = shape(
    "nccl_topo_file",
    "opology file",
    r"(?P<name>Could not open|Loading|Dumping)(?: XML)? topology file (?P<where>\S{1,200})"
    r"(?: ?: (?P<why>[^\n]{1,80}))?",
)

# graph/search.cc: written where no path is found, and for each graph; "speed" stood there for "bw" to 2.17
GRAPHS = (
    shape("nccl_graph", "falling back to simple order", r"pattern (?P<pattern>\d{1,2})\b", name="simple order"),
    shape(
        "nccl_graph",
        "Pattern ",
        r"Pattern (?P<name>\d{1,2}), crossNic \d, nChannels (?P<channels>\d{1,3}), (?:bw|speed) "
        r"(?P<intra>\d{1,6}\.\d{1,3})\d{0,6}/(?P<inter>\d{1,6}\.\d{1,3})\d{0,6}, "
        r"type (?P<type_intra>\w{1,8})/(?P<type_inter>\w{1,8})",
    ),
    shape(
        "nccl_graph_file", "loaded from XML graph", r"Search (?P<name>\d{1,2}) : (?P<channels>\d{1,4}) channels loaded"
    ),
)

# "nranks" are those of this communicator, not of the job.
SHAPES = (
    shape("nccl_init_done", "Init COMPLETE", _COMM),
    shape("nccl_init_start", "Init START", _COMM),
    shape(
        "nccl_topology",
        " localRanks ",
        r"comm (?P<comm>0x[0-9a-fA-F]{1,16}) rank (?P<comm_rank>\d{1,7}) nRanks (?P<ranks>\d{1,7})"
        r" nNodes (?P<nodes>\d{1,7}) localRanks (?P<local_ranks>\d{1,5}) localRank (?P<local_rank>\d{1,5})",
    ),
    shape(
        "nccl_ring",
        "Ring ",
        r"Ring (?P<channel>\d{1,3}) : (?P<prev>\d{1,7}) -> (?P<me>\d{1,7}) -> (?P<next>\d{1,7})",
    ),
    shape(
        "nccl_ring",
        "Channel ",
        r"Channel (?P<channel>\d{1,3})/(?P<channels>\d{1,3}) : (?P<order> {0,8}\d{1,7}(?: {1,8}\d{1,7}){0,4000})$",
    ),
    shape("nccl_tree", "Trees [", r"Trees (?P<name>\[\d{1,3}\] .{1,2000})"),
    shape(
        "nccl_channels",
        "coll channels",
        r"(?P<coll>\d{1,5}) coll channels(?:, (?P<collnet>\d{1,5}) collnet channels)?"
        r"(?:, (?P<nvls>\d{1,5}) nvls channels)?(?:, (?P<p2p>\d{1,5}) p2p channels)?"
        r"(?:, (?P<per_peer>\d{1,5}) p2p channels per peer)?",
    ),
    shape("nccl_channels", "Connected all", r"(?P<name>Connected all (?:rings|trees))"),
    shape(
        "nccl_link",
        " via ",
        r"Channel (?P<channel>\d{1,3})(?:/\d{1,3})? : (?P<from>\d{1,7})\[[0-9a-f]{1,16}\] -> "
        r"(?P<to>\d{1,7})\[[0-9a-f]{1,16}\] (?:\[(?P<direction>send|receive)\] )?"
        r"via (?P<name>[A-Z][\w/()]{1,60}(?: Libfabric[\w/()]{0,40})?)",
    ),
    # nccl-tests: rows of its table, the out-of-place columns. Its average counts small messages as well.
    *(shape("bandwidth", word, _TEST_ROW) for word in ("float ", "half ", "bfloat16 ")),
    shape("nccl_net", "ootstrap", r"(?P<name>Bootstrap) ?: [Uu]sing (?:interface )?(?P<devices>\S.{1,300})"),
    shape("nccl_net", "Using network", r"Using network (?P<name>[\w-]{1,40})"),
    shape("nccl_net", "NET/", r"(?P<name>NET/[\w-]{1,20}) ?: Using (?P<devices>.{1,300})"),
    shape("nccl_net", "NET/IB", r"(?P<name>NET/IB) ?: (?P<devices>No device found)"),
    # NET/IB of 2.4 to 2.9 counts GPUs, 2.10 gives bus ids, 2.18 says for which adapter and by which module.
    shape(
        "nccl_gdr",
        "GPU Direct RDMA",
        r"GPU Direct RDMA (?:\([\w-]{1,30}\) )?(?P<name>(?i:enabled|disabled)) for "
        r"(?:GPU (?P<gpu>[\w\[\]]{1,20}) ?/ ?)?HCA (?P<hca>\d{1,3})(?: {0,2}:? {0,2}'?(?P<where>[a-z][\w-]{1,40}))?",
    ),
    shape("nccl_setting", "Initializing aws-ofi", r"Initializing (?P<name>aws-ofi-nccl) (?P<value>\d[\w.+-]{2,40})"),
    shape(
        "nccl_setting",
        " set ",
        r"(?:NCCL INFO |^ {0,8})(?P<name>R?NCCL_\w{2,60}) set (?:by environment )?to (?P<value>\S{1,160})",
    ),
    shape(
        "nccl_qp", " qpn ", r"(?:(?:IbDev|Dev) (?P<dev>\d{1,3}) )?Port (?P<port>\d{1,3}) qpn \d{1,9} mtu (?P<mtu>\d)\b"
    ),
    # NCCL up to 2.12 says Width where later ones say Bw.
    shape(
        "nccl_system",
        "=== System",
        r"=== System : max(?:Bw|Width|Speed) {0,3}(?P<most>\d{1,5}\.\d) "
        r"total(?:Bw|Width|Speed) {0,3}(?P<total>\d{1,5}\.\d) ===",
    ),
    shape("nccl_hop", "+ NVL[", r"\+ (?P<name>NVL)\[\d{1,5}\.\d\] - "),
    shape("nccl_hop", " - GPU/", r"\+ (?P<name>PCI|SYS)\[\d{1,5}\.\d\] - GPU/"),
    shape("gpu_name", "(UUID: GPU-", r"^GPU \d{1,3}: (?P<name>[^\n(]{3,80}?) \(UUID: GPU-"),  # nvidia-smi -L
    shape("nccl_version", "CCL version", r"(?P<product>[NR]CCL) version ?:? ?(?P<name>\d[\w.+-]{2,40})"),
    shape(
        "nccl_call",
        "opCount",
        r"(?P<op>\w{3,40}): opCount (?P<op_count>[0-9a-f]{1,16}) .{0,120}?count (?P<size>\d{1,18}) datatype "
        r"(?P<datatype>\d{1,3}).{0,40}?comm (?P<comm>0x[0-9a-f]{1,16})",
    ),
)
