"""One command runs the broker, the web process, the workers and the sweeper, and ends them all."""

from config.supervisor.up import up

__all__ = ["up"]
