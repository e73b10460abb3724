"""Tools that tell of GPUs."""
