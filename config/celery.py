"""The Celery app. Its processes log as Django does and say when they are ready.

Celery itself has the kernel end pool processes with their worker (set_pdeathsig in celery/concurrency/prefork.py); the
supervisor's tests hold it to that.
"""

import os
import warnings
from typing import Any

from celery import Celery
from celery.exceptions import SecurityWarning
from celery.signals import setup_logging, worker_ready

from config.lifeline import report_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("golden15")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

# Running as root is what containers do. Only pickles make that dangerous for a worker, and it refuses those.
warnings.filterwarnings("ignore", category=SecurityWarning)


@setup_logging.connect
def keep_django_logging(**kwargs: Any) -> None:
    """Connecting is enough: Celery then leaves logging as settings.LOGGING set it."""


@worker_ready.connect
def tell_supervisor(**kwargs: Any) -> None:
    report_ready()
