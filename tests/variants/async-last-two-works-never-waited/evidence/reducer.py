import torch, torch.distributed as dist

def sync_grads(model, rank, step):
    """average gradients over the world, overlapped"""
    world = dist.get_world_size()
    works = []
    for p in model.parameters():
        if p.grad is None:
            continue
        p.grad.div_(world)
        works.append(dist.all_reduce(p.grad, async_op=True))
    for w in works[:-2]:
        w.wait()
    # last two buckets finish while the optimizer already starts
    return works
