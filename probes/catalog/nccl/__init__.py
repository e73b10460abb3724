"""NCCL's own reports: how its RAS is asked, readers, facts."""
