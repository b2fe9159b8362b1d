from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from runcontract.conf import Settings, read, settings
from runcontract.exceptions import ConfigurationError


def mask(text: str) -> str:
    return text.replace("secret", "***")


def test_the_defaults_stand_in_one_place_and_work() -> None:
    assert read({}) == Settings()
    assert read({}).STALE_AFTER >= 4 * read({}).HEARTBEAT


def test_an_unknown_key_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match='no key "HEARTBEATS"; did you mean "HEARTBEAT"'):
        read({"HEARTBEATS": timedelta(seconds=1)})
    with pytest.raises(ConfigurationError, match='did you mean "MAX_ATTEMPTS"'):
        read({"max_attempts": 3})


@pytest.mark.parametrize(
    "values",
    [
        {"HEARTBEAT": 30},
        {"HEARTBEAT": None},
        {"HEARTBEAT": timedelta(0)},
        {"HEARTBEAT": timedelta(seconds=-1)},
        {"HOLD_SUCCEEDED": timedelta.max},
        {"MAX_ATTEMPTS": 0},
        {"MAX_ATTEMPTS": True},
        {"MAX_ATTEMPTS": 2.5},
        {"FAST_PATH": 1},
        {"LANE": ""},
        {"LANE": None},
        {"ON_LOST": "again"},
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=rf'RUNCONTRACT\["{next(iter(values))}"\]'):
        read(values)


@pytest.mark.parametrize("values", [None, [], "HEARTBEAT"])
def test_anything_but_a_dict_is_refused(values: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a dict"):
        read(values)


def test_zero_and_none_are_taken_where_they_mean_something() -> None:
    values = {"HOLD_FAILED": timedelta(0), "SHORT_PAUSE": timedelta(0), "RETAIN": None}
    found = read(values)
    assert {name: getattr(found, name) for name in values} == values


def test_override_settings_takes_effect_and_ends() -> None:
    before = settings()
    with override_settings(RUNCONTRACT={"MAX_LOST": 9}):
        assert settings().MAX_LOST == 9
    assert settings() == before
    with override_settings(DEBUG=True):
        assert settings() is settings()


@pytest.mark.parametrize("given", [mask, "tests.test_conf.mask"])
def test_the_masking_is_a_callable_or_its_path(given: Any) -> None:
    redact = read({"REDACT": given}).redact
    assert redact is not None
    assert redact("a secret") == "a ***"
    assert read({}).redact is None
