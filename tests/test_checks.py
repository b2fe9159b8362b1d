"""What a project can get wrong is said, with an id, a remedy, and nothing else said with it."""

import io
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps as global_apps
from django.core.checks import CheckMessage, run_checks
from django.core.management import CommandError, call_command
from django.db import connection, connections, models
from django.test import override_settings
from django.test.utils import isolate_apps
from rq import Queue

from runcontract import RunPolicy
from runcontract.checks import check_databases, check_project, check_run_models
from runcontract.checks.models import is_on_postgres, model_problems
from runcontract.checks.project import lanes_exist, owns_its_commands
from runcontract.contract.constraints import ContractIndex, expected_names
from runcontract.models import RetryContract, RunContract
from runcontract.scheduler.schedules import Schedule
from runcontract.transport import RunQueue
from tests.lab.models import MailRun, OtherRun
from tests.settings import LANES

SECOND = timedelta(seconds=1)
LOCK = "lab_mailrun_lock"
NOWHERE = {"URL": "redis://127.0.0.1:9/0"}


def perform(self: Any, ctx: Any) -> None:
    """The work of the models in this file."""


def ids(messages: Any) -> list[str]:
    found: list[CheckMessage] = list(messages)
    assert all(message.hint for message in found if message.id != "runcontract.E002")
    return [str(message.id).removeprefix("runcontract.") for message in found]


@pytest.fixture
def isolated() -> Iterator[Any]:
    """A registry of its own for the models that a test makes."""
    with isolate_apps("tests.lab") as registry:
        yield registry


def test_the_lab_is_clean() -> None:
    assert run_checks() == []


@pytest.mark.django_db(databases=["default", "jobs"])
def test_the_labs_tables_are_clean_in_postgres() -> None:
    assert run_checks(databases=["default", "jobs"]) == []


def test_nothing_is_asked_of_redis_or_postgres() -> None:
    """No database is allowed in this test, and this Redis does not exist."""
    with override_settings(RQ_QUEUES=dict.fromkeys(LANES, NOWHERE)):
        assert run_checks() == []


# Models


def test_a_meta_that_does_not_inherit_is_an_error(isolated: Any) -> None:
    class Dropped(RetryContract):
        perform = perform

        class Meta:
            app_label = "lab"

    (problem,) = check_run_models(app_configs=isolated.get_app_configs())
    assert problem.id == "runcontract.E010"
    assert "lab_dropped_lock" in problem.msg
    assert "class Meta(RetryContract.Meta):" in str(problem.hint)


def test_a_meta_that_assigns_over_what_it_inherited_is_an_error(isolated: Any) -> None:
    class Replaced(RunContract):
        perform = perform

        class Meta(RunContract.Meta):
            app_label = "lab"
            indexes = [models.Index(fields=["lane"], name="mine")]

    (problem,) = model_problems(Replaced)
    assert problem.id == "runcontract.E010"
    assert "lab_replaced_queued" in problem.msg
    assert "lab_replaced_lock" not in problem.msg


def test_the_remedy_of_the_error_works(isolated: Any) -> None:
    class Extended(RetryContract):
        number = models.IntegerField()
        perform = perform

        class Meta(RetryContract.Meta):
            app_label = "lab"
            constraints = [
                *RetryContract.Meta.constraints,
                models.UniqueConstraint(fields=["number"], name="mine"),
            ]
            indexes = [
                *RetryContract.Meta.indexes,
                models.Index(fields=["number"], name="mine_too"),
            ]

    assert not ids(model_problems(Extended))
    names = {item.name for item in [*Extended._meta.constraints, *Extended._meta.indexes]}
    assert names == expected_names(Extended) | {"mine", "mine_too"}


def test_a_long_name_is_said_by_us_and_not_by_django(isolated: Any) -> None:
    class ANameThatGoesOnAndOnAndOnUntilPostgresHasHadEnough(RunContract):
        perform = perform

        class Meta(RunContract.Meta):
            app_label = "lab"

    model = ANameThatGoesOnAndOnAndOnUntilPostgresHasHadEnough
    assert not [message for message in model.check() if message.id == "models.E034"]
    (problem,) = model_problems(model)
    assert problem.id == "runcontract.E011"
    assert "lab.ANameThatGoesOnAndOnAndOnUntilPostgresHasHadEnough" in problem.msg
    longest = max(map(len, expected_names(model)))
    assert f"by {longest - 63} letters" in str(problem.hint)


COVERING: dict[str, Callable[[], dict[str, Any]]] = {
    "index": lambda: {"indexes": [ContractIndex(fields=["heartbeat_at"], name="x")]},
    "expression": lambda: {"indexes": [models.Index(models.F("heartbeat_at").desc(), name="x")]},
    "included": lambda: {
        "indexes": [models.Index(fields=["worker"], include=["heartbeat_at"], name="x")]
    },
    "condition": lambda: {
        "indexes": [
            models.Index(
                fields=["worker"], condition=models.Q(heartbeat_at__isnull=False), name="x"
            )
        ]
    },
    "constraint": lambda: {
        "constraints": [models.UniqueConstraint(fields=["worker", "heartbeat_at"], name="x")]
    },
    "unique_together": lambda: {"unique_together": [("worker", "heartbeat_at")]},
}


@pytest.mark.parametrize("how", COVERING)
def test_an_index_that_covers_the_pulse_is_an_error(isolated: Any, how: str) -> None:
    more = COVERING[how]()
    for kind in ("constraints", "indexes"):
        more[kind] = [*getattr(RunContract.Meta, kind), *more.get(kind, [])]
    meta = type("Meta", (RunContract.Meta,), {"app_label": "lab", **more})
    body = {"__module__": __name__, "Meta": meta, "perform": perform}
    assert ids(model_problems(type("Covered", (RunContract,), body))) == ["E012"]


def test_an_index_on_the_pulses_own_field_is_an_error(isolated: Any) -> None:
    class OwnField(RunContract):
        heartbeat_at = models.DateTimeField(null=True, db_index=True)
        perform = perform

        class Meta(RunContract.Meta):
            app_label = "lab"

    assert ids(model_problems(OwnField)) == ["E012"]


def test_a_database_that_is_not_postgres_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["jobs"], "vendor", "sqlite")
    assert not ids(is_on_postgres(MailRun))
    (problem,) = is_on_postgres(OtherRun)
    assert problem.id == "runcontract.E013"
    assert '"jobs", which is sqlite' in problem.msg


def test_a_database_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runcontract.checks.models.write_alias", lambda model: "nowhere")
    assert ids(is_on_postgres(MailRun)) == ["E013"]


def test_a_key_that_no_message_can_carry_is_an_error(isolated: Any) -> None:
    class TextKey(RunContract):
        name = models.CharField(max_length=20, primary_key=True)
        perform = perform

        class Meta(RunContract.Meta):
            app_label = "lab"

    class UuidKey(RunContract):
        id = models.UUIDField(primary_key=True, default=uuid.uuid4)
        perform = perform

        class Meta(RunContract.Meta):
            app_label = "lab"

    assert ids(model_problems(TextKey)) == ["E014"]
    assert ids(model_problems(UuidKey)) == []


def test_a_run_in_two_tables_is_an_error_and_a_proxy_is_not(isolated: Any) -> None:
    class Base(RunContract):
        perform = perform

        class Meta(RunContract.Meta):
            app_label = "lab"

    class Child(Base):
        class Meta:
            app_label = "lab"

    class Stand(Base):
        class Meta:
            app_label = "lab"
            proxy = True

    found = ids(check_run_models(app_configs=isolated.get_app_configs()))
    assert "E015" in found
    assert "E014" in found  # its key is the link to the other table
    assert not [
        m for m in check_run_models(app_configs=isolated.get_app_configs()) if m.obj is Stand
    ]
    assert ids(model_problems(Base)) == []


def test_a_label_outside_ascii_is_an_error(isolated: Any) -> None:
    class Größe(RunContract):
        perform = perform

        class Meta(RunContract.Meta):
            app_label = "lab"

    assert ids(model_problems(Größe)) == ["E016"]


def test_a_run_model_without_work_is_an_error(isolated: Any) -> None:
    class Idle(RunContract):
        class Meta(RunContract.Meta):
            app_label = "lab"

    assert ids(model_problems(Idle)) == ["E017"]


# Settings, policies, lanes


@pytest.mark.parametrize(
    ("values", "found", "said"),
    [
        ({"HEARTBEATS": SECOND}, "E001", 'did you mean "HEARTBEAT"?'),
        ({"HEARTBEAT": 30}, "E001", "must be a datetime.timedelta"),
        ({"HEARTBEAT": 31 * SECOND}, "E003", "less than 4 heartbeats"),
        ({"FENCE_MARGIN": 61 * SECOND}, "E004", "FENCE_MARGIN"),
        ({"LANE": "nowhere"}, "E006", "no lane 'nowhere'"),
    ],
)
def test_settings_that_cannot_work_are_one_error(
    values: dict[str, Any], found: str, said: str
) -> None:
    with override_settings(RUNCONTRACT=values):
        (problem,) = check_project(app_configs=None)
    assert problem.id == f"runcontract.{found}"
    assert said in problem.msg
    assert problem.hint


@pytest.mark.parametrize(
    ("policy", "found", "said"),
    [
        (RunPolicy(max_attempts=0), "E002", "must be a whole number from 1 on"),
        ({"lane": "bulk"}, "E002", "not a RunPolicy"),
        (RunPolicy(stale_after=SECOND), "E003", "less than 4 heartbeats"),
        (RunPolicy(stale_after=4 * SECOND), "E004", "less than 2 heartbeats"),
        (RunPolicy(lane="nowhere"), "E006", "lab.MailRun"),
    ],
)
def test_a_policy_that_cannot_work_is_one_error(
    monkeypatch: pytest.MonkeyPatch, policy: Any, found: str, said: str
) -> None:
    monkeypatch.setattr(MailRun, "policy", policy)
    times = {"HEARTBEAT": SECOND, "STALE_AFTER": 9 * SECOND, "FENCE_MARGIN": 3 * SECOND}
    with override_settings(RUNCONTRACT=times):
        (problem,) = check_project(app_configs=None)
    assert problem.id == f"runcontract.{found}"
    assert said in problem.msg


def test_no_lane_at_all_is_an_error(settings: Any) -> None:
    settings.RQ_QUEUES = {}
    assert ids(lanes_exist([MailRun])) == ["E005"]
    del settings.RQ_QUEUES
    assert ids(check_project(app_configs=None)) == ["E005"]


@pytest.mark.parametrize("rq", [{}, {"QUEUE_CLASS": "rq.Queue"}, {"QUEUE_CLASS": "no.Such"}, None])
def test_rqs_own_queue_class_is_an_error(rq: Any) -> None:
    with override_settings(RQ=rq):
        assert ids(check_project(app_configs=None)) == ["E007"]


def test_only_a_queue_of_ordinary_jobs_may_have_a_class_of_its_own() -> None:
    class Mine(RunQueue):
        """A subclass is as good."""

    own = {**NOWHERE, "QUEUE_CLASS": Queue}
    lanes = dict.fromkeys(LANES, NOWHERE)
    with override_settings(RQ={"QUEUE_CLASS": Mine}, RQ_QUEUES={**lanes, "ordinary": own}):
        assert ids(check_project(app_configs=None)) == []
    with override_settings(RQ_QUEUES={**lanes, "default": own}):
        assert ids(check_project(app_configs=None)) == ["E007"]


# Schedules and commands


@pytest.mark.parametrize(
    "values",
    [
        {"expression": "0 0 31 2 *"},
        {"expression": "nonsense"},
        {"timezone": "Mars/One"},
        {"lane": "nowhere"},
    ],
)
def test_a_schedule_that_never_fires_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    good = Schedule("good", MailRun, "0 3 * * *")
    known = {"good": good, "bad": replace(good, name="bad", **values)}
    monkeypatch.setattr("runcontract.scheduler.schedules._schedules", known)
    (problem,) = check_project(app_configs=None)
    assert problem.id == "runcontract.W002"
    assert "'bad'" in problem.msg
    assert problem.hint


def test_a_module_of_schedules_that_is_broken_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"tests.lab": "tests.lab.schedules cannot be imported: SyntaxError: no"}
    monkeypatch.setattr("runcontract.scheduler.schedules._modules", said)
    assert ids(check_project(app_configs=None)) == ["W002"]


def test_another_app_with_a_command_of_that_name_is_a_warning(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = tmp_path / "management" / "commands"
    commands.mkdir(parents=True)
    (commands / "runworker.py").touch()
    lab = global_apps.get_app_config("lab")
    monkeypatch.setattr(lab, "path", str(tmp_path))
    (problem,) = owns_its_commands()
    assert problem.id == "runcontract.W001"
    assert "runcontract and tests.lab both have a command runworker" in problem.msg
    assert "that of runcontract." in problem.msg
    assert "runcontract_worker" in str(problem.hint)


@pytest.mark.parametrize("command", ["runcontract_worker", "runcontract_scheduler"])
def test_the_other_names_are_the_same_commands(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command(command, "--help")
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert ("--drain-timeout" in said) or ("--once" in said)


# Postgres


def in_postgres(statement: str) -> list[CheckMessage]:
    """What is said after this statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
    return check_databases(app_configs=None, databases=["default"])


DRIFTS = {
    "missing lock": (f"DROP INDEX {LOCK}", "E020"),
    "missing check": ("ALTER TABLE lab_mailrun DROP CONSTRAINT lab_mailrun_failure", "E020"),
    "missing index": ("DROP INDEX lab_mailrun_queued", "E020"),
    "invalid": (
        f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{LOCK}'::regclass",
        "E021",
    ),
    "not validated": (
        "ALTER TABLE lab_mailrun DROP CONSTRAINT lab_mailrun_state, "
        "ADD CONSTRAINT lab_mailrun_state CHECK (state <> '') NOT VALID",
        "E021",
    ),
    "not unique": (
        f"DROP INDEX {LOCK}; CREATE INDEX {LOCK} ON lab_mailrun (lock_key) "
        "WHERE state IN ('queued', 'running')",
        "E022",
    ),
    "another predicate": (
        f"DROP INDEX {LOCK}; CREATE UNIQUE INDEX {LOCK} ON lab_mailrun (lock_key) "
        "WHERE state = 'running'",
        "E022",
    ),
    "a foreign predicate": (
        f"DROP INDEX {LOCK}; CREATE UNIQUE INDEX {LOCK} ON lab_mailrun (lock_key) "
        "WHERE note LIKE '%s'",
        "E022",
    ),
    "no predicate": (
        f"DROP INDEX {LOCK}; CREATE UNIQUE INDEX {LOCK} ON lab_mailrun (lock_key)",
        "E022",
    ),
    "another column": (
        f"DROP INDEX {LOCK}; CREATE UNIQUE INDEX {LOCK} ON lab_mailrun (lock_key, note) "
        "WHERE state IN ('queued', 'running')",
        "E022",
    ),
    "on the pulse": ("CREATE INDEX mine ON lab_mailrun (worker, heartbeat_at)", "E023"),
}


@pytest.mark.django_db
@pytest.mark.parametrize("how", DRIFTS)
def test_what_postgres_has_not_as_it_should_is_an_error(how: str) -> None:
    statement, found = DRIFTS[how]
    (problem,) = in_postgres(statement)
    assert problem.id == f"runcontract.{found}"
    assert 'Table "lab_mailrun"' in problem.msg
    assert problem.hint


@pytest.mark.django_db
def test_the_same_predicate_in_other_words_is_no_error() -> None:
    same = (
        f"DROP INDEX {LOCK}; CREATE UNIQUE INDEX {LOCK} ON lab_mailrun (lock_key) "
        "WHERE state = 'queued' OR state = 'running'"
    )
    assert in_postgres(same) == []


@pytest.mark.django_db
def test_a_table_that_is_not_there_yet_is_no_error() -> None:
    assert in_postgres("ALTER TABLE lab_mailrun RENAME TO elsewhere") == []


@pytest.mark.django_db
def test_what_a_migration_is_about_to_bring_is_no_error() -> None:
    """`migrate` runs these checks first; they must not keep it from repairing."""
    forget = "DELETE FROM django_migrations WHERE app = 'lab'"
    assert in_postgres(f"DROP INDEX {LOCK}; {forget}") == []


@pytest.mark.django_db
def test_check_database_ends_with_an_error_that_names_table_and_remedy() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP INDEX {LOCK}")
    with pytest.raises(CommandError, match="lab_mailrun_lock") as refused:
        call_command("check", databases=["default"], stderr=io.StringIO())
    assert "runcontract.E020" in str(refused.value)


@pytest.mark.django_db
def test_a_database_that_was_not_asked_for_is_left_alone() -> None:
    assert check_databases(app_configs=None, databases=[]) == []
