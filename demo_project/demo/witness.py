"""A witness in Postgres that notes each run's birth and each arrival at `succeeded`.

It is no part of the contract: with it the demo counts, independently, what runcontract promises.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connection

from runcontract.models import RunContract

from .counts import consumers

TABLE = """
CREATE TABLE IF NOT EXISTS demo_witnessed (
    run_table text NOT NULL,
    run_pk text NOT NULL,
    state text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
)"""

FUNCTION = """
CREATE OR REPLACE FUNCTION demo_witness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO demo_witnessed (run_table, run_pk, state)
    VALUES (TG_TABLE_NAME, to_jsonb(NEW) ->> TG_ARGV[0], NEW.state);
    RETURN NULL;
END $$"""

TRIGGERS = (
    """
CREATE OR REPLACE TRIGGER demo_witness AFTER UPDATE OF state ON {table} FOR EACH ROW
WHEN (NEW.state = 'succeeded' AND OLD.state <> 'succeeded')
EXECUTE FUNCTION demo_witness('{key}')""",
    """
CREATE OR REPLACE TRIGGER demo_witness_birth AFTER INSERT ON {table} FOR EACH ROW
EXECUTE FUNCTION demo_witness('{key}')""",
)

TWICE = """
SELECT run_table, run_pk FROM demo_witnessed WHERE state = 'succeeded'
GROUP BY 1, 2 HAVING count(*) > 1"""

SEEN = """
SELECT count(*) FROM demo_witnessed WHERE state = 'succeeded' AND run_table = %s AND at >= %s"""

BORN = "SELECT run_pk FROM demo_witnessed WHERE state = 'queued' AND run_table = %s AND at >= %s"


def install() -> None:
    """Put the witness on every run table; harmless when it is there already."""
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        cursor.execute(FUNCTION)
        for model in consumers():
            table = connection.ops.quote_name(model._meta.db_table)
            for trigger in TRIGGERS:
                cursor.execute(trigger.format(table=table, key=model._meta.pk.column))


def forget() -> None:
    """All that was noted; for a new story in emptied tables."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE demo_witnessed")


def succeeded_twice() -> list[str]:
    """The runs that arrived at `succeeded` more than once, each as table and key."""
    return [f"{table} {key}" for table, key in _rows(TWICE)]


def arrivals(table: str, since: datetime) -> int:
    """How often a run of this table arrived at `succeeded` since then."""
    ((count,),) = _rows(SEEN, table, since)
    return int(count)


def lost(model: type[RunContract], since: datetime) -> list[str]:
    """The keys of the runs that were enqueued since then and whose rows are gone."""
    born = {key for (key,) in _rows(BORN, model._meta.db_table, since)}
    return sorted(born - {str(pk) for pk in model.objects.values_list("pk", flat=True)})


def _rows(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
