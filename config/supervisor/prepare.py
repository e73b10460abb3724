"""What is set up once, in the supervisor, so that the parts need not: Django, the database, the first user's link."""

import os

from config.env import SettingError


def set_up_database() -> int:
    """Bring the database up to date and return how many migrations that took.

    Loading Django here costs half a second; running `manage.py migrate` at every start would cost it again. Raises
    SettingError when the database does not answer or its file cannot be used.
    """
    import django
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import call_command
    from django.db import Error, connection, connections
    from django.db.migrations.executor import MigrationExecutor

    try:
        django.setup()
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if plan:
            call_command("migrate", interactive=False, verbosity=0)
        return len(plan)
    except (Error, ImproperlyConfigured) as error:
        raise SettingError(_database_advice(error)) from None
    finally:
        connections.close_all()


def look_for_broker() -> None:
    """Raises SettingError when REDIS_URL names a server that does not answer."""
    import redis
    from django.conf import settings

    if "REDIS_URL" not in os.environ:
        return
    client = redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=5, socket_timeout=5, retry=None)
    try:
        client.ping()
    except redis.RedisError as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise SettingError(
            f"The server that REDIS_URL names does not work: {reason}. Check that it runs and that it lets us in."
        ) from None
    finally:
        client.close()


def _database_advice(error: Exception) -> str:
    from django.conf import settings

    reason = " ".join(str(error).split())
    if settings.DATABASE_URL:
        return (
            f"The database that DATABASE_URL names does not work: {reason}. Check that it runs and that it lets us in."
        )
    return (
        f"The database {settings.DATABASES['default']['NAME']} does not work: {reason}. Free or repair it, or move it."
    )


def sign_in_path() -> str:
    """The path of a fresh one-time link for the administrator, or of the sign-in page when the database fails."""
    from django.db import Error, connections
    from django.urls import reverse

    from incidents.services.sign_in import issue_first_link

    try:
        return reverse("sign_in_link", args=[issue_first_link()])
    except Error:
        return reverse("sign_in")
    finally:
        connections.close_all()
