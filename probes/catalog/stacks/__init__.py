"""Stacks and profiles of processes: how they are taken, readers, facts."""
