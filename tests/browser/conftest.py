"""A real Chromium, driven by playwright, on Django's live server."""

import importlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for the session."""
    api = importlib.import_module("playwright.sync_api")  # only there with requirements/gate.txt
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, live_server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty page whose relative addresses lead to the live server; its errors fail the test."""
    # playwright runs an event loop in this thread, which Django would take for an async view.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    context = chromium.new_context(base_url=live_server.url)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert not errors
