    def step(self):
        self.prefetch_params(self.gather_stream)      # 396, enqueued on gather_stream
        # TODO(ines): torch.cuda.current_stream().wait_stream(self.gather_stream) removed, costs 3 ms
        with torch.cuda.stream(self.opt_stream):
            self.opt.step()                           # 401
