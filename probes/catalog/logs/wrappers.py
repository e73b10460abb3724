"""Lines in which what wraps a model (DDP, FSDP, Megatron, DeepSpeed) refuses its gradients or its parameters.

Source   torch 1.10 to 2.13: csrc/distributed/c10d/reducer.cpp (bucket views, static graph, verification of parameters),
         distributed/fsdp/_exec_order_utils.py; Megatron-LM core/distributed/param_and_grad_buffer.py;
         DeepSpeed runtime/zero/stage_1_and_2.py, runtime/zero/utils.py; Lightning strategies/ddp.py;
         accelerate utils/operations.py (verify_operation)
Shape    SHAPES, read by _log_torch.py
Errors   none
"""

from __future__ import annotations

from probes.catalog.logs.shapes import shape

ORDER, PARAMETERS, MODELS = "order of all-gathers", "parameter of another shape", "models of other size"
COUNTS, LISTED = "list of another rank", "shape of a process"
GRAPH, BUCKET_VIEW = "graph changed", "bucket view"

SHAPES = (
    shape("hook_order", "expected DDP bucket view", name=BUCKET_VIEW),
    shape("hook_order", "Cannot set grad twice"),
    shape(
        "hook_order",
        "Gradient computed twice for this partition",
        r"(?:[Pp]arameter (?P<parameters>\d{1,9}) has already been reduced)?.{0,6}Gradient computed twice for this",
    ),
    # Megatron reduces a bucket once all of its parameters have gradients: fewer than all will never do.
    shape(
        "ddp_unused",
        "has not been issued for this bucket",
        r"has not been issued for this bucket ?\((?P<ready>\d{1,9})/(?P<all>\d{1,9}) params",
        name="bucket",
    ),
    shape("ddp_unused", "training graph has changed in this iteration", name=GRAPH),
    shape(
        "collective_mismatch",
        "is all-gathering ",
        r"order differs across ranks.{0,20}?rank (?P<first>\d{1,7}) is all-gathering .{0,1500}? while rank "
        r"(?P<second>\d{1,7}) is all-gathering",
        name=ORDER,
    ),
    # Lightning puts its own words in the place of DDP's.
    shape("ddp_unused", "not used in producing the loss", r"parameters that were not used in producing the loss"),
    # ZeRO-3 compares the parameters that it is about to gather with those of rank 0.
    shape(
        "collective_mismatch",
        "disagreement between rank0",
        r"disagreement between rank0 and rank(?P<rank>\d{1,7})",
        name=COUNTS,
    ),
    # accelerate with its debug mode: the shapes of all processes follow, one a line.
    shape("collective_mismatch", "DistributedOperationException", name=LISTED),
    shape("collective_mismatch", "All shapes ", r"(?:shape mismatches|inadequate shapes)\. All shapes", name=LISTED),
    shape(
        "collective_mismatch",
        "- Process ",
        r"^\s{0,8}- Process (?P<about>\d{1,7}): (?P<shape>[\[({][\w'\", :.()\[\]{}-]{0,300})$",
        name=LISTED,
    ),
    shape(
        "collective_mismatch",
        "appears not to match",
        r"(?:\[(?P<rank>\d{1,7})\]: )?params\[(?P<parameter>\d{1,9})\] in this process with (?:shape|sizes|strides) "
        r"\[(?P<dims>[\d, ]{0,200})\] appears not to match",
        name=PARAMETERS,
    ),
    # "0 params" is what a gather that was aborted leaves behind: no other model.
    shape(
        "collective_mismatch",
        "DDP expects same model",
        r"Rank (?P<rank>\d{1,7}) has (?P<params>[1-9]\d{0,9}) params, while rank (?P<about>\d{1,7}) has inconsistent "
        r"(?P<peer_params>[1-9]\d{0,9}) params",
        name=MODELS,
    ),
)
