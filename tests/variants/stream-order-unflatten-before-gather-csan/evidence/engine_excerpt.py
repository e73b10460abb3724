    # step(), lines 226-236
    with torch.cuda.stream(self.comm_stream):
        self.comm_stream.wait_stream(torch.cuda.current_stream())
        shard = self._flat_shard()
        dist.all_gather_into_tensor(self.gather_buf, shard, group=self.dp, async_op=False)
    with torch.cuda.stream(self.copy_stream):
        # copy overlaps with next forward
        self._unflatten(self.gather_buf, shard)
