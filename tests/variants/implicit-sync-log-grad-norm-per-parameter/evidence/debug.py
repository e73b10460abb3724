# vlm/debug.py
import logging
log = logging.getLogger("vlm.debug")


def log_norms(model, step):
    """Norm of each gradient, for the instability hunt (remove later!)."""
    out = {}
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        out[name] = p.grad.float().norm().item()
    log.debug("step %d norms %s", step, out)
    return out
