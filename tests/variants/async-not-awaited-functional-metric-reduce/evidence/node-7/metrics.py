# excerpt, lines 40-58
import torch.distributed as dist
import torch.distributed._functional_collectives as fc


def mean_over_ranks(x):
    y = fc.all_reduce(x, "sum", dist.group.WORLD)
    raw = y.elem if isinstance(y, fc.AsyncCollectiveTensor) else y
    return raw / dist.get_world_size()  # goes to the scheduler and the early stop
