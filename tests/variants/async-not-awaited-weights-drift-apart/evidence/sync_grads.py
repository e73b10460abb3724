# excerpt, overlap branch
for step in range(n_steps):
    grad = local_grad(step)
    avg = fc.all_reduce(grad.clone(), "sum", dist.group.WORLD)   # for the stats panel
    work = dist.all_reduce(grad, async_op=True)     # handle kept for later overlap
    w -= 0.01 * grad / dist.get_world_size()
    if step % 10 == 0:
        log(f"step {step} |w|={w.norm():.6f} checksum={w.double().sum():.9f}")
