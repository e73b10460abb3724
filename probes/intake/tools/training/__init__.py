"""Tools that tell of ranks: stacks, profiles, traces, tables of steps."""
