"""The Celery app. Its processes log as Django does, say when they are ready, and die with their parents."""

import os
import warnings
from typing import Any

from celery import Celery
from celery.exceptions import SecurityWarning
from celery.signals import setup_logging, worker_process_init, worker_ready

from config.lifeline import die_with_parent, report_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("golden15")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

# Running as root is what containers do. Only pickles make that dangerous for a worker, and it refuses those.
warnings.filterwarnings("ignore", category=SecurityWarning)


@setup_logging.connect
def keep_django_logging(**kwargs: Any) -> None:
    """Connecting is enough: Celery then leaves logging as settings.LOGGING set it."""


@worker_process_init.connect
def tie_pool_process(**kwargs: Any) -> None:
    """A pool process would outlive a killed worker and go on with its task."""
    from billiard.process import current_process

    die_with_parent(current_process()._parent_pid)


@worker_ready.connect
def tell_supervisor(**kwargs: Any) -> None:
    report_ready()
