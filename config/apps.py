"""The wiring as an app, so that every process that sets Django up also knows the Celery app."""

from django.apps import AppConfig


class WiringConfig(AppConfig):
    name = "config"

    def ready(self) -> None:
        # shared_task finds its broker through the current app: web and commands send tasks too.
        import config.celery  # noqa: F401
