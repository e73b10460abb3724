"""Django's settings. Everything a site may change is an environment variable, read by config.env."""

import os
import socket
from typing import Any

import dj_database_url

from config import env, paths

BASE_DIR = paths.BASE
DATA_DIR = paths.data_folder()
SECRET_KEY = paths.secret_key(DATA_DIR)
DEBUG = env.flag("GOLDEN15_DEBUG")
# Served through a proxy that ends TLS and sets X-Forwarded-Proto. Only then are cookies Secure: over plain HTTP on
# loopback a browser would not send them back.
HTTPS = env.flag("GOLDEN15_HTTPS")

HOST = env.text("GOLDEN15_HOST", "127.0.0.1")
_LOOPBACK = ["localhost", "127.0.0.1", "[::1]"]
_BOUND = [] if HOST in {"0.0.0.0", "::"} else [f"[{HOST}]" if ":" in HOST else HOST]
ALLOWED_HOSTS = [*_LOOPBACK, *_BOUND, socket.gethostname(), *env.words("GOLDEN15_HOSTS")]
CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in env.words("GOLDEN15_HOSTS")] if HTTPS else []
# Where people reach this server: the links in the terminal begin with it.
SITE_URL = env.url("GOLDEN15_URL", ("http", "https"), "https://golden15.example").rstrip("/") or paths.last_address(
    DATA_DIR
)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    "config",
    "incidents",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "incidents.middleware.PolicyMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "incidents.views.acting.who",
            ],
        },
    }
]

# Databases. No ATOMIC_REQUESTS: on SQLite every atomic() takes the write lock, so a slow page holds up the workers.
DATABASE_URL = env.url("DATABASE_URL", ("postgres", "postgresql"), "postgresql://user:password@db.example/golden15")


def _databases() -> dict[str, Any]:
    if DATABASE_URL:
        database: dict[str, Any] = {**dj_database_url.parse(DATABASE_URL)}
        database["OPTIONS"] = {"connect_timeout": 10, **database.get("OPTIONS", {})}
        return {"default": database}
    options = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": "PRAGMA journal_mode=WAL;"}
    return {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": paths.private_file(DATA_DIR / "golden15.sqlite3"),
            "OPTIONS": options,
            # A file, never memory: tests with threads need a second connection that sees the same rows.
            "TEST": {"NAME": DATA_DIR / "test.sqlite3"},
        }
    }


DATABASES = _databases()
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Broker and doorbell. Without REDIS_URL the supervisor starts a server of our own on a private Unix socket.
REDIS_URL = env.url("REDIS_URL", ("redis", "rediss", "unix"), "redis://broker.example:6379/0")
if not REDIS_URL:
    REDIS_URL = f"unix://{paths.run_folder(DATA_DIR) / paths.SOCKET_NAME}"
# kombu's own name for a Unix socket; redis-py says unix://.
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)

# Celery carries ids only, and never pickles. A task is acknowledged when it is done, so a killed process loses none.
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_RESULT_SERIALIZER = "json"
CELERY_EVENT_SERIALIZER = "json"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CONCURRENCY = env.number("GOLDEN15_WORKERS", max(2, min(4, os.cpu_count() or 2)), 1, 64)
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TIMEZONE = "UTC"
# A page must not hang because the broker is away: fail at once, the sweeper rings again.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0,
    "interval_max": 0,
    "socket_connect_timeout": 2,
}

# How workers reach nodes: an SSH configuration instead of ~/.ssh/config and /etc/ssh/ssh_config.
SSH_CONFIG = env.file("GOLDEN15_SSH_CONFIG")

# Seconds over which a recording answers in a drill, as nodes would; 0: at once.
DRILL_SECONDS = env.number("GOLDEN15_DRILL_SECONDS", 3, 0, 30)

# Files that people bring, see docs/upload.md: bytes at once, bytes of one incident, files at once; and what the process
# that reads them may use: seconds, bytes of addresses.
UPLOAD_BYTES = env.number("GOLDEN15_UPLOAD_MIB", 256, 1, 16_384) * 1_048_576
UPLOAD_INCIDENT_BYTES = max(UPLOAD_BYTES, env.number("GOLDEN15_UPLOAD_INCIDENT_MIB", 1024, 1, 65_536) * 1_048_576)
UPLOAD_FILES = DATA_UPLOAD_MAX_NUMBER_FILES = 5000
UPLOAD_SECONDS = env.number("GOLDEN15_UPLOAD_SECONDS", 300, 10, 3600)
UPLOAD_MEMORY = env.number("GOLDEN15_UPLOAD_MEMORY_MIB", 3072, 1024, 262_144) * 1_048_576

# People
AUTH_USER_MODEL = "incidents.User"
LOGIN_URL = "sign_in"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "sign_in"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

# The browser: nothing from elsewhere, nothing inline, nobody may frame us.
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "golden15_session", "golden15_csrf"
CSRF_FAILURE_VIEW = "incidents.views.errors.csrf_failure"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
if HTTPS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^healthz$"]  # the supervisor asks on loopback, without the proxy
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "manifest-src": ["'self'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
        "base-uri": ["'none'"],
        "object-src": ["'none'"],
    }
}

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Straight from static/, without a collectstatic step; browsers ask again each time, so an update shows at once.
WHITENOISE_USE_FINDERS = True
WHITENOISE_MAX_AGE = 0

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["stderr"], "level": env.text("GOLDEN15_LOG", "INFO").upper()},
    "loggers": {
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        # One line per refused connection or unknown page is noise beside an incident.
        "django.request": {"level": "ERROR"},
        "uvicorn": {"level": "WARNING"},
        "celery": {"level": "WARNING"},
        "asyncssh": {"level": "WARNING"},
    },
}


def _check_log_level(level: str) -> None:
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    if level not in levels:
        raise env.SettingError(f"GOLDEN15_LOG is {level!r}. Set it to one of {', '.join(levels)}, or unset it.")


_check_log_level(LOGGING["root"]["level"])  # type: ignore[index]
