"""Remembers, shows and decides: the Django app."""
