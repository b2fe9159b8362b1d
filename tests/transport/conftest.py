"""Each test begins with a Redis that nobody has given up."""

import pytest

from runcontract.transport import breaker_of


@pytest.fixture(autouse=True)
def closed_breaker(redis_server):
    breaker_of("default")._closed_until = 0.0
    yield
    breaker_of("default")._closed_until = 0.0
