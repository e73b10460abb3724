"""Training processes: how they are found and sampled on a node, readers, facts."""
