"""Tools that tell of a machine: load, memory, storage, kernel, settings."""
