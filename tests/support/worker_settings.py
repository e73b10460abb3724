"""The product's settings, for a real supervisor whose worker also knows the tests' tasks."""

from config.settings import *  # noqa: F403

CELERY_IMPORTS = ["tests.support.tasks"]
