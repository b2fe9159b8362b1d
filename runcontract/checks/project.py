"""Each check of the project: settings, policies, lanes, RQ, schedules and commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.core.management import find_commands
from django.utils.module_loading import import_string

from ..conf import Settings, settings
from ..contract.policy import RunPolicy
from ..exceptions import ConfigurationError
from ..models import RunContract
from ..scheduler.schedules import problems
from ..transport import RunQueue, lanes

PULSES = 4
"""Heartbeats that `stale_after` must leave room for."""
PULSES_BEFORE_THE_FENCE = 2
"""Heartbeats that a supervisor may miss before it stops its runs."""
QUEUE_CLASS = "runcontract.transport.RunQueue"
ALIASES = {"runworker": "runcontract_worker", "runscheduler": "runcontract_scheduler"}


def project_problems(models: Sequence[type[RunContract]]) -> Iterator[CheckMessage]:
    """Everything that is wrong with the project around these run models."""
    yield from owns_its_commands()
    yield from uses_our_queue(models)
    try:
        defaults = settings()
    except ConfigurationError as error:
        yield Error(str(error), hint="Correct settings.RUNCONTRACT.", id="runcontract.E001")
        return
    found = [
        *silence_has_room("RUNCONTRACT", None, defaults.STALE_AFTER, defaults),
        *(problem for model in models for problem in policy_works(model, defaults)),
        *lanes_exist(models),
    ]
    yield from found
    if not found:  # or each schedule would say it again
        yield from schedules_fire(problems())


def policy_works(model: type[RunContract], defaults: Settings) -> Iterator[CheckMessage]:
    """E002: a policy with a value that cannot be meant; then E003 and E004 for its own times."""
    label = model._meta.label
    policy: object = model.policy
    if not isinstance(policy, RunPolicy):
        problem = f"it is {policy!r}, not a RunPolicy."
        yield Error(f"The policy of {label}: {problem}", obj=model, id="runcontract.E002")
        return
    try:
        stale_after = policy.effective().stale_after
    except ConfigurationError as error:
        yield Error(f"The policy of {label}: {error}", obj=model, id="runcontract.E002")
        return
    if stale_after != defaults.STALE_AFTER:
        yield from silence_has_room(f"The policy of {label}", model, stale_after, defaults)


def silence_has_room(
    where: str, obj: Any, stale_after: timedelta, defaults: Settings
) -> Iterator[CheckMessage]:
    """E003, E004: a threshold that a healthy worker would cross."""
    beat, margin = defaults.HEARTBEAT, defaults.FENCE_MARGIN
    if stale_after < PULSES * beat:
        yield Error(
            f"{where}: STALE_AFTER is {stale_after}, less than {PULSES} heartbeats of {beat}; "
            "healthy runs would be reaped.",
            hint=f"Let it be {PULSES * beat} or more, or HEARTBEAT shorter.",
            obj=obj,
            id="runcontract.E003",
        )
    elif stale_after - margin < PULSES_BEFORE_THE_FENCE * beat:
        most = stale_after - PULSES_BEFORE_THE_FENCE * beat
        yield Error(
            f"{where}: FENCE_MARGIN {margin} of STALE_AFTER {stale_after} leaves a worker less "
            f"than {PULSES_BEFORE_THE_FENCE} heartbeats of {beat} before it stops its runs.",
            hint=f"Let FENCE_MARGIN be {most} or less, or STALE_AFTER longer.",
            obj=obj,
            id="runcontract.E004",
        )


def lanes_exist(models: Iterable[type[RunContract]]) -> Iterator[CheckMessage]:
    """E005, E006: lanes that lead nowhere."""
    if not lanes():
        yield Error(
            "settings.RQ_QUEUES names no lane, so no run can travel.",
            hint='Write RQ_QUEUES = {"default": {"URL": "redis://localhost:6379/0"}}.',
            id="runcontract.E005",
        )
        return
    for lane, users in sorted(_lanes_in_use(models).items()):
        if lane not in lanes():
            yield Error(
                f"There is no lane {lane!r} in RQ_QUEUES, and it is used by {', '.join(users)}.",
                hint=f"Add it to RQ_QUEUES, or use one of {', '.join(lanes())}.",
                id="runcontract.E006",
            )


def uses_our_queue(models: Sequence[type[RunContract]]) -> Iterator[CheckMessage]:
    """E007: RQ's own queue class removes every message that somebody looks at."""
    named: list[tuple[str, Any]] = [('RQ["QUEUE_CLASS"]', _rq().get("QUEUE_CLASS"))]
    for lane in sorted(_lanes_in_use(models)):
        own = getattr(django_settings, "RQ_QUEUES", {}).get(lane, {})
        if "QUEUE_CLASS" in own:
            named.append((f'RQ_QUEUES["{lane}"]["QUEUE_CLASS"]', own["QUEUE_CLASS"]))
    for where, queue_class in named if models and lanes() else []:
        if not _is_ours(queue_class):
            yield Error(
                f"{where} is {queue_class or 'not set'}; with RQ's own class a look at django-rq's "
                "pages or `rq info` takes the runs' messages out of their lanes.",
                hint=f'Write RQ = {{"QUEUE_CLASS": "{QUEUE_CLASS}"}}. A queue of ordinary RQ jobs '
                "may name a class of its own in RQ_QUEUES.",
                id="runcontract.E007",
            )


def schedules_fire(sentences: Iterable[str]) -> Iterator[CheckMessage]:
    """W002: a schedule that never fires, or a broken module of them. It stops only itself."""
    for sentence in sentences:
        yield CheckWarning(
            sentence, hint="Correct it in the app's schedules.py.", id="runcontract.W002"
        )


def owns_its_commands() -> Iterator[CheckMessage]:
    """W001: two apps with a command of one name; the first in INSTALLED_APPS wins."""
    for command, alias in ALIASES.items():
        owners = [
            config.name
            for config in apps.get_app_configs()
            if command in find_commands(str(Path(config.path) / "management"))
        ]
        if len(owners) > 1:
            yield CheckWarning(
                f"{' and '.join(owners)} both have a command {command}; `manage.py {command}` is "
                f"that of {owners[0]}.",
                hint=f"`manage.py {alias}` is always runcontract's.",
                id="runcontract.W001",
            )


def _lanes_in_use(models: Iterable[type[RunContract]]) -> dict[str, list[str]]:
    """Which models travel in each lane by their policy or the settings."""
    used: dict[str, list[str]] = {}
    for model in models:
        try:
            used.setdefault(model.policy.effective().lane, []).append(model._meta.label)
        except (ConfigurationError, AttributeError):
            continue  # E001 and E002 speak of it
    return used


def _rq() -> dict[str, Any]:
    return getattr(django_settings, "RQ", {}) or {}


def _is_ours(queue_class: Any) -> bool:
    if isinstance(queue_class, str):
        try:
            queue_class = import_string(queue_class)
        except ImportError:
            return False
    return isinstance(queue_class, type) and issubclass(queue_class, RunQueue)
