"""Wiring: settings, the web and worker entry points, and the one command that runs them all."""
