"""A witness in Postgres that notes each arrival of a run at `succeeded`, whoever wrote it.

It is no part of the contract: with it the demo counts, independently, what runcontract promises.
"""

from __future__ import annotations

from datetime import datetime

from django.db import connection

from .counts import consumers

TABLE = """
CREATE TABLE IF NOT EXISTS demo_witness (
    run_table text NOT NULL,
    run_pk text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
)"""

FUNCTION = """
CREATE OR REPLACE FUNCTION demo_witness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO demo_witness (run_table, run_pk)
    VALUES (TG_TABLE_NAME, to_jsonb(NEW) ->> TG_ARGV[0]);
    RETURN NULL;
END $$"""

TRIGGER = """
CREATE OR REPLACE TRIGGER demo_witness AFTER UPDATE OF state ON {table} FOR EACH ROW
WHEN (NEW.state = 'succeeded' AND OLD.state <> 'succeeded')
EXECUTE FUNCTION demo_witness('{key}')"""

TWICE = "SELECT run_table, run_pk FROM demo_witness GROUP BY 1, 2 HAVING count(*) > 1"

SEEN = "SELECT count(*) FROM demo_witness WHERE run_table = %s AND at >= %s"


def install() -> None:
    """Put the witness on every run table; harmless when it is there already."""
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        cursor.execute(FUNCTION)
        for model in consumers():
            table = connection.ops.quote_name(model._meta.db_table)
            cursor.execute(TRIGGER.format(table=table, key=model._meta.pk.column))


def succeeded_twice() -> list[str]:
    """The runs that arrived at `succeeded` more than once, each as table and key."""
    with connection.cursor() as cursor:
        cursor.execute(TWICE)
        return [f"{table} {key}" for table, key in cursor.fetchall()]


def arrivals(table: str, since: datetime) -> int:
    """How often a run of this table arrived at `succeeded` since then."""
    with connection.cursor() as cursor:
        cursor.execute(SEEN, [table, since])
        return int(cursor.fetchone()[0])
