# excerpt
def install(ddp_model):
    # called after DistributedDataParallel(model, ...)
    for name, p in ddp_model.module.named_parameters():
        if 'resnets' in name:
            p.register_hook(functools.partial(_recompute_penalty, p, name))

def _recompute_penalty(p, name, grad):
    pen = (p.float() ** 2).sum() * LAMBDA
    torch.autograd.backward(pen)      # line 31
    return grad
