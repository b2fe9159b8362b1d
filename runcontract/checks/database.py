"""What Postgres really has of the contract: `check --database default`.

Only reads. A table that is not there yet, or whose app has migrations to come, is left alone:
`migrate` runs these checks first, and must not be kept from what it is about to repair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import ProgrammingError, connections, transaction
from django.db.migrations.executor import MigrationExecutor

from ..contract.constraints import expected_names
from ..contract.states import ACTIVE, State
from ..lifecycle.table import Table, table_of
from ..models import RunContract

_OBJECTS = """
SELECT i.relname, x.indisvalid AND x.indisready, x.indisunique,
       ARRAY(SELECT a.attname::text FROM unnest(x.indkey) WITH ORDINALITY AS k(attnum, n)
             JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.attnum ORDER BY k.n),
       pg_get_expr(x.indpred, x.indrelid)
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid WHERE x.indrelid = to_regclass(%s)
UNION ALL
SELECT conname, convalidated, false, '{}'::text[], NULL
FROM pg_constraint WHERE contype = 'c' AND conrelid = to_regclass(%s)
"""
"""table, table -> name, valid, unique, columns, predicate of its indexes and CHECKs."""

_CASES = [(str(state), released) for state in State for released in (False, True)]
_UNIQUE: dict[str, tuple[list[str], list[bool]]] = {
    "lock": (["lock_key"], [state in ACTIVE for state, _ in _CASES]),
    "job_id": (["job_id"], [not released for _, released in _CASES]),
}
"""suffix: its columns, and for each case whether the row counts."""


@dataclass(frozen=True)
class _Found:
    name: str
    valid: bool
    unique: bool
    columns: list[str]
    predicate: str | None


def database_problems(
    models: Iterable[type[RunContract]], aliases: Sequence[str]
) -> Iterator[CheckMessage]:
    """What is missing, invalid or different in the run tables of these databases."""
    tables = [table_of(model) for model in models]
    for alias in aliases:
        here = [table for table in tables if table.alias == alias]
        if here and connections[alias].vendor == "postgresql":
            pending = _apps_with_migrations_to_come(alias)
            for table in here:
                if table.model._meta.app_label not in pending:
                    yield from _table_problems(table)


def _apps_with_migrations_to_come(alias: str) -> set[str]:
    executor = MigrationExecutor(connections[alias])
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return {migration.app_label for migration, _ in plan}


def _table_problems(table: Table) -> Iterator[CheckMessage]:
    with connections[table.alias].cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [_unescaped(table)])
        if not cursor.fetchone()[0]:
            return
        cursor.execute(_OBJECTS, [_unescaped(table)] * 2)
        found = {row[0]: _Found(*row) for row in cursor.fetchall()}
    for name in sorted(expected_names(table.model)):
        yield from _object_problems(table, name, found.get(name))
    for item in found.values():
        if "heartbeat_at" in item.columns:
            what = f'The index "{item.name}" covers heartbeat_at, so no heartbeat is a HOT update.'
            yield _error(table, what, f'Drop it: DROP INDEX CONCURRENTLY "{item.name}";', "E023")


def _object_problems(table: Table, name: str, found: _Found | None) -> Iterator[CheckMessage]:
    again = "then write a migration that adds it as the model's Meta says"
    if found is None:
        what = f'There is no constraint or index "{name}".'
        remedy = f"Clear what it would refuse, {again}; sqlmigrate shows its SQL."
        yield _error(table, what, remedy, "E020")
    elif not found.valid:
        what = f'"{name}" is invalid: Postgres did not finish making it.'
        remedy = f'REINDEX INDEX CONCURRENTLY "{name}"; for a CHECK, VALIDATE CONSTRAINT.'
        yield _error(table, what, remedy, "E021")
    elif not _as_meant(table, name, found):
        what = f'"{name}" is not the unique index that the contract needs.'
        remedy = f"Drop it, {again}; until then two runs may share what must be unique."
        yield _error(table, what, remedy, "E022")


def _as_meant(table: Table, name: str, found: _Found) -> bool:
    meta = table.model._meta
    prefix = f"{meta.app_label}_{meta.model_name}_".lower()
    if name.removeprefix(prefix) not in _UNIQUE:
        return True
    columns, counted = _UNIQUE[name.removeprefix(prefix)]
    return found.unique and found.columns == columns and _rows_counted(table, found) == counted


def _rows_counted(table: Table, found: _Found) -> list[bool]:
    """Which of the cases the index's predicate lets in: what it means, however it is written."""
    rows = ", ".join(
        f"({n}, '{state}'::varchar, {'now()' if released else 'NULL::timestamptz'})"
        for n, (state, released) in enumerate(_CASES)
    )
    question = (
        f"SELECT COALESCE({found.predicate or 'true'}, false) "
        f"FROM (VALUES {rows}) AS cases (n, state, released_at) ORDER BY n"
    )
    try:
        with (
            transaction.atomic(using=table.alias),
            connections[table.alias].cursor() as cursor,
        ):
            cursor.execute(question)
            return [row[0] for row in cursor.fetchall()]
    except ProgrammingError:
        return []  # it asks for other columns


def _unescaped(table: Table) -> str:
    return table.name.replace("%%", "%")


def _error(table: Table, what: str, remedy: str, number: str) -> CheckMessage:
    where = f"Table {_unescaped(table)}"
    label: Any = table.model
    return Error(f"{where}: {what}", hint=remedy, obj=label, id=f"runcontract.{number}")
