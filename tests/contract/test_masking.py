"""Secrets are masked, what is no secret stays readable, and no text takes long."""

import time

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from runcontract.contract import masking
from runcontract.contract.masking import mask

OWN_KEY = "django-own-SECRET-key"

MASKED = [
    # H37
    (
        'HTTPError("401 for url https://api.example/x?api_key=SECRET1")',
        'HTTPError("401 for url https://api.example/x?api_key=***")',
    ),
    ("postgresql://u:SECRET2@h/db", "postgresql://u:***@h/db"),
    (
        """headers={"Authorization":"Bearer SECRET4"}""",
        """headers={"Authorization":"Bearer ***"}""",
    ),
    ('send(a=1, token="SECRET5", b=2)', 'send(a=1, token="***", b=2)'),
    (
        "Error 111 connecting to redis://:SECRET@h:6379/0.",
        "Error 111 connecting to redis://:***@h:6379/0.",
    ),
    # URLs
    ("amqp://user:p@SECRET@h/v", "amqp://user:***@h/v"),
    ("mysql://u:pa/SECRET@h/db", "mysql://u:***@h/db"),
    ("mysql://u:12345SECRET@h", "mysql://u:***@h"),
    ("https://u:SECRET@h:8443/path?email=a@b.c", "https://u:***@h:8443/path?email=a@b.c"),
    ("https://ghp_SECRETSECRETSECRET@github.com/x", "https://***@github.com/x"),
    (r"postgres:\/\/u:SECRET@h", r"postgres:\/\/u:***@h"),
    # parameters
    ("?key=SECRET&page=2", "?key=***&page=2"),
    ("?sig=SECRET", "?sig=***"),
    ("?page=2&access_token=SECRET#top", "?page=2&access_token=***"),
    ("next=https%3A%2F%2Fx%3Ftoken%3DSECRET&page=2", "next=https%3A%2F%2Fx%3Ftoken%3D***&page=2"),
    ("X-Amz-Signature=SECRET&x=1", "X-Amz-Signature=***&x=1"),
    ("host=h password=SECRET,SECRET user=u", "host=h password=*** user=u"),
    ("f(password=SECRET, user=u)", "f(password=***, user=u)"),
    ("SECRET_KEY = 'SECRET'", "SECRET_KEY = '***'"),
    ("AWS_SECRET_ACCESS_KEY=SECRET", "AWS_SECRET_ACCESS_KEY=***"),
    ("environ['DB_PASSWORD'] = 'SECRET'", "environ['DB_PASSWORD'] = '***'"),
    ("password1: SECRET", "password1: ***"),
    ("passwords => SECRET", "passwords => ***"),
    ("clientSecret: SECRET", "clientSecret: ***"),
    ("secretAccessKey=SECRET", "secretAccessKey=***"),
    ("password=b'SECRET'", "password=b'***'"),
    ("""password="it's SECRET", user='u'""", """password="***", user='u'"""),
    (r'{"password": "a\"SECRET", "user": "u"}', '{"password": "***", "user": "u"}'),
    (r'"{\"password\": \"SECRET\", \"user\": 1}"', r'"{\"password\": \"***\", \"user\": 1}"'),
    ('password="SECRET without an end\nnext', 'password="***\nnext'),
    ("[('x-api-key', 'SECRET'), ('a', 'b')]", "[('x-api-key', '***'), ('a', 'b')]"),
    ("Cookie: sessionid=SECRET; a=b", "Cookie: ***; a=b"),
    # headers
    ("Authorization: Basic SECRET==\nHost: x", "Authorization: Basic ***\nHost: x"),
    ("Proxy-Authorization: SECRET", "Proxy-Authorization: ***"),
    ("Authorization: Strange SECRET here", "Authorization: *** here"),
    ("(b'authorization', b'Bearer SECRET')", "(b'authorization', b'Bearer ***')"),
    ("sent with bearer SECRET4 and failed", "sent with bearer *** and failed"),
    # the project's own
    (f"bad key {OWN_KEY}!", "bad key ***!"),
]


@pytest.mark.parametrize(("raw", "stored"), MASKED)
def test_a_secret_is_masked_and_the_rest_stays(raw: str, stored: str) -> None:
    with override_settings(SECRET_KEY=OWN_KEY):
        assert mask(raw) == stored
        assert mask(stored) == stored


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8443/users/me@example.org",
        "http://host:80?email=a@b.c",
        "http://host:80",
        "ssh://git@host/path and git@host:path",
        "https://user@host/",
        "password=None, token=null, secret=False, pwd=True",
        'password=""',
        "max_tokens=100 tokenizer=x token_type=y bypass=1 compass: north",
        "KeyError: 'key' and key=5, code=404",
        "missing: ['token', 'url']",
        "('token', 'url', 'x')",
        'password authentication failed for user "x"',
        "Basic authentication failed, bearer expected",
        "the token is (=)",
        "password=)",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == text


def test_older_secret_keys_are_masked_too() -> None:
    with override_settings(SECRET_KEY="short", SECRET_KEY_FALLBACKS=[OWN_KEY, b"bytes", ""]):
        assert mask(f"a short text: {OWN_KEY}") == "a short text: ***"


def test_a_project_without_settings_masks_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unconfigured:
        @property
        def SECRET_KEY(self) -> str:  # noqa: N802 -- as Django calls it
            raise ImproperlyConfigured

    assert settings.configured
    monkeypatch.setattr(masking, "settings", Unconfigured())
    assert mask("password=SECRET") == "password=***"


UNITS = [
    *("a", " ", "'", "\\", "=", "1", "ж", "a@", "aaaa-", "x ", ";,)", "\n"),
    *("://", "://u:", "://a@", "://a:1", "://u:x/", "://u:a"),
    *("token=", "token='", "token', \"", 'token:\\"', "token='\\", "password", "pass_", "secretA"),
    *("authorization: ", "authorization:", "authorization: a ", "bearer ", "bearer a", "?key"),
]


def seconds_to_mask(text: str) -> float:
    started = time.process_time()
    mask(text)
    return time.process_time() - started


@pytest.mark.parametrize("unit", UNITS)
def test_no_repetition_takes_more_than_linear_time(unit: str) -> None:
    """About 1 µs a character at worst; a quadratic pattern would take minutes here."""
    assert seconds_to_mask(unit * (400_000 // len(unit))) < 4


def test_ten_megabytes_of_everything_take_seconds() -> None:
    assert seconds_to_mask("".join(unit * (320_000 // len(unit)) for unit in UNITS)) < 60
