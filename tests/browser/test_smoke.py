"""That the browser tests can work at all."""

from typing import Any


def test_admin_asks_for_a_name_and_a_password(page: Any) -> None:
    page.goto("/admin/")
    assert page.locator("input[name=password]").is_visible()
