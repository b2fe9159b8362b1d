from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from runcontract import RunPolicy
from runcontract.contract.classify import Verdict
from runcontract.exceptions import ConfigurationError


@override_settings(RUNCONTRACT={"MAX_ATTEMPTS": 7, "LANE": "bulk"})
def test_what_a_policy_leaves_unsaid_comes_from_the_settings() -> None:
    policy = RunPolicy(hold_failed=timedelta(0)).effective()
    assert (policy.max_attempts, policy.lane) == (7, "bulk")
    assert policy.hold_failed == timedelta(0)
    assert policy.on_lost == "fail"
    assert policy.timeout is None
    assert policy.atomic is False


def test_a_policy_follows_the_settings_of_the_moment() -> None:
    policy = RunPolicy(lane="default")
    with override_settings(RUNCONTRACT={"MAX_LOST": 9}):
        assert policy.effective().max_lost == 9
    with override_settings(RUNCONTRACT={"MAX_LOST": 2}):
        assert policy.effective().max_lost == 2


def test_none_overrides_a_setting_that_may_be_none() -> None:
    with override_settings(RUNCONTRACT={"TIMEOUT": timedelta(seconds=9)}):
        assert RunPolicy(timeout=None).effective().timeout is None
        assert RunPolicy().effective().timeout == timedelta(seconds=9)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"max_attempts": 0}, "MAX_ATTEMPTS"),
        ({"timeout": 5}, "TIMEOUT"),
        ({"on_lost": "panic"}, "ON_LOST"),
        ({"lane": ""}, "LANE"),
        ({"hold_succeeded": timedelta.max}, "HOLD_SUCCEEDED"),
        ({"stale_after": timedelta(seconds=-1)}, "STALE_AFTER"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_by_name(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf'RunPolicy\["{said}"\]'):
        RunPolicy(**values).effective()


def test_a_policy_carries_its_own_table_of_errors() -> None:
    def own(error: BaseException) -> Verdict | None:
        return Verdict(False)

    assert RunPolicy(classify=own).effective().classify is own
