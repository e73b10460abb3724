"""Tables that only grow: the database itself refuses changes of their rows, whoever asks."""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper

# Table -> what is said to who tries. Each has a migration that guards it; one that remakes a table on SQLite (which
# drops its triggers) guards it again.
APPEND_ONLY = {
    "incidents_event": "the timeline is append-only: add an event that corrects it",
    "incidents_ranking": "a ranking is never changed: new evidence makes a new one",
    "incidents_decision": "a decision is never changed: a change of mind is a new decision",
}


# What is unique in a row beside its id.
UNIQUE = {"incidents_event": ("incident_id", "seq")}


def _no_replacing(table: str) -> str:
    """SQLite's INSERT OR REPLACE removes the row that is in its way without any trigger for DELETE. Where the id is
    left to the database there is none yet, so no row has it."""
    same = " AND ".join(f"{name} = NEW.{name}" for name in UNIQUE.get(table, ()))
    there = f"id = NEW.id OR ({same})" if same else "id = NEW.id"
    return (
        f"CREATE TRIGGER IF NOT EXISTS {table}_no_INSERT BEFORE INSERT ON {table} "
        f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {there}) BEGIN SELECT RAISE(ABORT, '{APPEND_ONLY[table]}'); END"
    )


def _guards(vendor: str, table: str) -> list[str]:
    says = APPEND_ONLY[table]
    if vendor == "sqlite":
        return [
            f"CREATE TRIGGER {table}_no_{verb} BEFORE {verb} ON {table} BEGIN SELECT RAISE(ABORT, '{says}'); END"
            for verb in ("UPDATE", "DELETE")
        ] + [_no_replacing(table)]
    return [
        f"CREATE FUNCTION {table}_guard() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{says}' USING ERRCODE = 'integrity_constraint_violation'; END $$",
        f"CREATE TRIGGER {table}_rows BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_guard()",
        f"CREATE TRIGGER {table}_all BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION {table}_guard()",
    ]


def guard(connection: BaseDatabaseWrapper, *tables: str) -> None:
    """Make the database refuse UPDATE, DELETE and (on PostgreSQL) TRUNCATE of rows of these tables, and on SQLite an
    INSERT that takes the place of a row (PostgreSQL takes such a one for an UPDATE)."""
    with connection.cursor() as cursor:
        for statement in (one for table in tables for one in _guards(connection.vendor, table)):
            cursor.execute(statement)


def unguard(connection: BaseDatabaseWrapper, *tables: str) -> None:
    """Take the guard away. Only for undoing a migration, and for tests that empty their database."""
    with connection.cursor() as cursor:
        for table in tables:
            if connection.vendor == "postgresql":
                cursor.execute(f"DROP FUNCTION {table}_guard() CASCADE")
                continue
            for verb in ("UPDATE", "DELETE", "INSERT"):
                cursor.execute(f"DROP TRIGGER IF EXISTS {table}_no_{verb}")


def guard_inserts(connection: BaseDatabaseWrapper) -> None:
    """Guard databases whose guards were made before they refused such an INSERT."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            for table in APPEND_ONLY:
                cursor.execute(_no_replacing(table))


def unguard_inserts(connection: BaseDatabaseWrapper) -> None:
    """Only for undoing the migration of `guard_inserts`."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            for table in APPEND_ONLY:
                cursor.execute(f"DROP TRIGGER IF EXISTS {table}_no_INSERT")
