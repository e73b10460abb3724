"""Adapters, interfaces and fabrics: readers, facts and findings."""
