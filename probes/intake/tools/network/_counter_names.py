"""Names of counters of ports, whoever prints them, as sysfs has them: what a word beside a number may be.

Shape    canonical(word) -> the name that rules know, "" for what is no counter; short(word) for heads of columns
Errors   none
Source   Linux: mlx5/counters.c, bnxt_re/hw_counters.c, efa_verbs.c, ethtool names of mlx5 (en_stats.c) and bnxt
         (bnxt_ethtool.c); infiniband-diags (perfquery.c); node_exporter (infiniband_linux.go), prometheus' procfs
"""

from __future__ import annotations

import re

from probes.catalog.network.ib_names import COUNTERS
from probes.reference import rows

_SYSFS = frozenset(row["name"] for row in rows("ib_counters")) | frozenset(COUNTERS.values())
_HARDWARE = frozenset((
    "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "np_cnp_sent", "np_ecn_marked_roce_packets",
    "out_of_buffer", "out_of_sequence", "packet_seq_err", "req_cqe_error", "req_cqe_flush_error",
    "req_remote_access_errors", "resp_cqe_flush_error", "req_remote_invalid_request", "req_rnr_retries_exceeded",
    "req_transport_retries_exceeded", "resp_cqe_error", "rnr_nak_retry_err", "resp_local_length_error",
    "resp_remote_access_errors", "roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart",
    "roce_slow_restart_cnps", "roce_slow_restart_trans", "rp_cnp_handled", "rp_cnp_ignored", "rx_atomic_requests",
    "rx_read_requests", "rx_write_requests", "rx_icrc_encapsulated", "tx_roce_discards", "rx_roce_discards",
    "tx_roce_errors", "rx_roce_errors", "max_retry_exceeded", "retrans_pkts", "retrans_bytes",
    "retrans_timeout_events", "impaired_remote_conn_events", "rx_drops", "unresponsive_remote_events",
    "rdma_read_wr_err", "rdma_write_wr_err",
))  # fmt: skip
_ETHTOOL = re.compile(
    r"[rt]x_prio[0-7]_(?:pause|pause_duration|pause_transition|discards?|buf_discard|cong_discard|marked|packets|bytes)"
    r"|[rt]x_(?:global_pause|global_pause_duration|global_pause_transition|pause_ctrl_phy|discards_phy|errors_phy)"
    r"|rx_(?:crc_errors_phy|symbol_err_phy|pcs_symbol_err_phy|corrected_bits_phy|out_of_buffer|in_range_len_errors_phy)"
    r"|rx_err_lane_\d_phy|link_down_events_phy|[rt]x_pause_storm_(?:warning|error)_events|outbound_pci_stalled_\w{2,12}"
    r"|rx_discards_phy|tx_discards_phy|module_unplug|carrier_changes"
)
# Other drivers' and tools' words for the same things.
_SAME = {
    "carrier_down_count": "link_down_events_phy",
    "effective_physical_ber": "effective_ber_e18", "effective_ber": "effective_ber_e18", "eff_ber": "effective_ber_e18",
    "symbol_ber": "symbol_ber_e18", "sym_ber": "symbol_ber_e18", "raw_physical_ber": "raw_ber_e18",
    "raw_ber": "raw_ber_e18",
    "to_retransmits": "local_ack_timeout_err", "seq_err_naks_rcvd": "packet_seq_err", "dup_req": "duplicate_request",
    "rnr_naks_rcvd": "rnr_nak_retry_err", "missing_resp": "implied_nak_seq_err", "oos_drop_count": "out_of_sequence",
    "rx_cnp_pkts": "rp_cnp_handled", "tx_cnp_pkts": "np_cnp_sent", "rx_ecn_marked_pkts": "np_ecn_marked_roce_packets",
    "cnphandled": "rp_cnp_handled", "cnpsent": "np_cnp_sent", "cnpignored": "rp_cnp_ignored",
    "rxecnmrkd": "np_ecn_marked_roce_packets", "port_transmit_wait": "port_xmit_wait",
    "port_transmit_discards": "port_xmit_discards", "port_discards_transmitted": "port_xmit_discards",
    "port_discards_received": "port_rcv_errors", "port_errors_received": "port_rcv_errors",
    "port_receive_errors": "port_rcv_errors", "port_receive_remote_physical_errors": "port_rcv_remote_physical_errors",
    "port_receive_switch_relay_errors": "port_rcv_switch_relay_errors",
    "port_data_transmitted_bytes": "port_xmit_bytes", "port_data_received_bytes": "port_rcv_bytes",
    "port_transmit_data_bytes": "port_xmit_bytes", "port_receive_data_bytes": "port_rcv_bytes",
    "port_packets_transmitted": "port_xmit_packets", "port_packets_received": "port_rcv_packets",
    "vl15_dropped": "VL15_dropped", "symbol_error_count": "symbol_error",
}  # fmt: skip
# What people head columns with, beside a second counter or words such as host and port.
_SHORT = {
    "xmit_wait": "port_xmit_wait", "xmtwait": "port_xmit_wait", "xmitwait": "port_xmit_wait",
    "tx_wait": "port_xmit_wait",
    "xmit_discards": "port_xmit_discards", "xmtdiscards": "port_xmit_discards", "rcv_errors": "port_rcv_errors",
    "rcverrors": "port_rcv_errors", "symbol_errors": "symbol_error", "symbolerr": "symbol_error",
    "symbol_err": "symbol_error", "link_downs": "link_downed", "linkdowned": "link_downed",
    "oos": "out_of_sequence", "out_of_seq": "out_of_sequence", "seq_err": "packet_seq_err",
    "carrier": "carrier_changes", "flaps": "carrier_changes", "link_down": "link_downed", "downs": "link_downed",
    "effective_ber": "effective_ber_e18", "eff_ber": "effective_ber_e18", "symbol_ber": "symbol_ber_e18",
    "cnp_sent": "np_cnp_sent", "cnp_handled": "rp_cnp_handled", "cnps_sent": "np_cnp_sent",
    "ecn_marked": "np_ecn_marked_roce_packets", "adp_retrans": "roce_adp_retrans",
    "ack_timeout": "local_ack_timeout_err",
    "ack_timeouts": "local_ack_timeout_err",
}  # fmt: skip
_PREFIX = re.compile(
    r"(?:node_|prom_)?(?:infiniband|ethtool|rdma|roce|ib|dcgm)_(?:switch_|hca_|hw_|counters?_|exporter_)?(?=[a-z])"
)
_PRIORITY = re.compile(r"pfc_pri([0-7])_([rt])x_duration_us|([rt])x_pfc_ena_frames_pri([0-7])")
_SPELT = re.compile(r"(received|transmitted)_(?=prio\d|discards|pause|global)")
_SWITCH = {name.lower(): value for name, value in COUNTERS.items()}


def canonical(word: str) -> str:
    if not 5 <= len(word) <= 80:
        return ""
    if word in COUNTERS:
        return COUNTERS[word]
    name = word.lower()
    if found := _known(name) or _known(name.removesuffix("_total")):
        return found
    bare = _PREFIX.sub("", name.removesuffix("_total"), count=1)
    bare = _SPELT.sub(lambda spelt: "rx_" if spelt[1] == "received" else "tx_", bare)
    return _known(bare) if bare != name else ""


def _known(name: str) -> str:
    if name in _SYSFS or name in _HARDWARE or _ETHTOOL.fullmatch(name):
        return name
    if found := _PRIORITY.fullmatch(name):
        if found[1]:
            return f"{found[2]}x_prio{found[1]}_pause_duration"
        return f"{found[3]}x_prio{found[4]}_pause"
    return _SAME.get(name) or _SWITCH.get(name, "")


def short(word: str) -> str:
    """As canonical, also for what only heads a column."""
    bare = re.sub(r"[- ]+", "_", word.strip().lower())
    return canonical(word) or _SHORT.get(bare, "") or (canonical(bare) if bare != word else "")
