"""GPUs: how they are asked on a node, readers of the tools' outputs, facts."""
