"""Do the database and the broker answer?"""

from dataclasses import dataclass
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, connection

BROKER_TIMEOUT = 1.0  # seconds


@dataclass(frozen=True)
class Health:
    database: bool
    broker: bool


def health() -> Health:
    """One cheap question to each. Never raises: not answering is the answer."""
    return Health(database=_database_answers(), broker=_broker_answers())


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            row: Any = cursor.fetchone()
    except DatabaseError:
        return False
    return bool(row == (1,))


def _broker_answers() -> bool:
    client = redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=BROKER_TIMEOUT, socket_connect_timeout=BROKER_TIMEOUT, retry=None
    )
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()
