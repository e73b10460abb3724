"""Tools that tell of schedulers, pods and jobs."""
