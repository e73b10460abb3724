class ParamOffload:
    def __init__(self): self.copy_stream = torch.cuda.Stream()
    def prefetch(self, shard, full):
        self.work = dist.all_gather_into_tensor(full, shard, group=self.pg, async_op=True)
        with torch.cuda.stream(self.copy_stream):
            # NOTE: used to have self.work.wait() here, removed in !882 for overlap
            self.staging.copy_(full, non_blocking=True)
        return self.staging
