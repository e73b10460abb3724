"""Lines in which ranks fail to meet or lose each other: gloo, stores, rendezvous, connections.

Source   torch 1.10 to 2.13: ProcessGroupGloo.cpp, gloo's transport/tcp, TCPStore, socket.cpp, elastic/rendezvous
Shape    SHAPES, read by _log_torch.py
Errors   none
"""

from __future__ import annotations

from probes.catalog.logs.shapes import shape

_N = r"\d{1,18}"
SHAPES = (
    shape(
        "bootstrap",
        "SO_ERROR",
        r"SO_ERROR: (?P<name>[A-Z][\w ]{2,60}), remote=(?P<peer>\[[^\]]{1,60}\]:\d{1,5})",
    ),
    shape("bootstrap", "onnect timeout [", r"(?P<name>[Cc]onnect timeout) (?P<peer>\[[^\]]{1,60}\]:\d{1,5})"),
    shape("bootstrap", "nable to find address", r"(?P<name>Unable to find address for): ?(?P<where>[\w.@-]{1,60})"),
    # Of gloo's group, where its node's own name leads to no address of the node: peers are given 127.0.0.1.
    shape("bootstrap", "oopback address as fallback", r"Using the (?P<name>loopback address as fallback)"),
    shape(  # of gloo, pair.cc
        "bootstrap",
        "] connect [",
        r"\] connect (?P<peer>\[[^\]]{1,60}\]:\d{1,5}): (?P<name>[A-Z][\w ]{2,60})",
    ),
    shape("bootstrap", "connectFullMesh", r"(?P<name>connectFullMesh failed)"),
    shape(
        "gloo_timeout",
        "Timed out waiting",
        rf"Timed out waiting (?P<timeout_ms>{_N})ms for (?P<op>\w{{1,20}}) operation",
    ),
    shape(
        "peer_closed",
        "Connection closed by peer [",
        r"Connection closed by peer (?P<peer>\[[^\]]{1,60}\]:\d{1,5})",
        True,
        "connection closed by peer",
    ),
    shape(
        "peer_closed",
        "reset by peer",
        r"(?:Read|Write|writev|readv)\w{0,4} (?:error )?(?P<peer>\[[^\]]{1,60}\]:\d{1,5}): Connection reset",
        True,
        "connection reset by peer",
    ),
    shape(
        "setup_missed",
        "retrieving ncclUniqueId",
        r"retrieving ncclUniqueId from \[(?P<about>\d{1,7})\](?:.{0,120}?store->get\('(?P<key>[^']{1,80})'\))?",
    ),
    shape("store_timeout", "waitForInput", rf"waitForInput.{{0,200}}?timed out after (?P<timeout_ms>{_N}) ?ms"),
    shape(
        "store_timeout",
        "wait timeout after",
        rf"wait timeout after (?P<timeout_ms>{_N})ms, keys: (?P<key>\S{{1,120}})",
    ),
    shape("store_timeout", "Timeout waiting for key", r"Timeout waiting for key: (?P<key>\S{1,120})"),
    shape(
        "store_closed", "recvBytes", r"recvBytes.{0,200}?(?P<name>Connection reset by peer|Broken pipe|failed)", True
    ),
    shape("store_closed", "recvValue", r"recvValue\w{0,16} failed", True),
    shape("store_closed", "Connection was likely closed", secondary=True),
    shape(
        "rendezvous",
        "clients joined",
        r"(?P<joined>\d{1,7})/(?P<world>\d{1,7}) clients joined",
        name="members missing",
    ),
    shape(
        "rendezvous",
        "store based barrier",
        r"(?i:timed out|timeout|failed).{0,80}store based barrier on rank:? \d{1,7}.{0,200}?"
        r"world_size=(?P<world>\d{1,7}), (?:worker_count|num_workers_joined)=(?P<joined>\d{1,7})",
        name="members missing",
    ),
    shape(
        "rendezvous",
        "endezvous",
        r"(?i:\brendezvous\b.{0,60}?(?:timed out|timeout|time-out).{0,80}?)"
        r"(?P<joined>\d{1,7}) ?(?:/|of) ?(?P<world>\d{1,7}) (?:nodes|workers|agents|members|ranks)",
        name="members missing",
    ),
    shape("rendezvous", "EADDRINUSE"),
    shape("rendezvous", "ailed to listen", r"server socket has failed to (?P<name>listen)"),
    shape(
        "rendezvous",
        "client socket",
        r"client socket has (?P<name>failed to connect|timed out)(?:.{0,80}?(?P<peer>[(\[]\S.{0,80}?[)\]]))?"
        r"(?:.{0,40}?errno: ?(?P<code>\d{1,4}))?",
    ),
    shape(
        "rendezvous",
        "cannot be initialized to connect",
        r"client socket cannot be initialized to connect to (?P<peer>[(\[]\S.{0,80}?[)\]])"
        r"(?:.{0,40}?errno: ?(?P<code>\d{1,4}))?",
        name="failed to connect",
    ),
    shape(
        "rendezvous",
        "cannot be retrieved",
        r"network addresses of (?P<peer>\(.{1,120}?\)) (?P<name>cannot be retrieved)",
    ),
    # Members are called <host>_<pid>_<number>: dynamic_rendezvous.py, _NodeDescGenerator
    shape(
        "rendezvous",
        "keep-alive",
        r"(?:[Nn]ode '(?P<peer>[A-Za-z0-9][\w.-]{0,120}?)_\d{1,8}_\d{1,4}' has )?"
        r"failed to send a (?P<name>keep-alive) heartbeat to the rendezvous",
    ),
    shape(
        "rendezvous",
        "etected dead node",
        r"etected (?P<name>dead) node '(?P<peer>[A-Za-z0-9][\w.-]{0,120}?)_\d{1,8}_\d{1,4}'",
    ),
    shape(
        "rendezvous",
        "had no heartbeat",
        r"node\(s\) '?(?P<peer>[A-Za-z0-9][\w.-]{0,120}?)_\d{1,8}_\d{1,4}\b.{0,300}? removed from the rendezvous "
        r".{0,120}?since they had (?P<name>no heartbeat)",
    ),
    shape("rendezvous", "etcd.Etcd", r"(?:^|\s)etcd\.Etcd\w{4,40}", name="EtcdConnectionError"),
    shape("rendezvous", "Rendezvous", r"(?P<name>Rendezvous[A-Z][A-Za-z]{3,30}Error)"),
)
