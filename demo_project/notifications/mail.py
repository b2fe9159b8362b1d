"""One mail over SMTP, and the server's own words when it does not take it."""

from __future__ import annotations

import re
import smtplib

from django.core.mail import EmailMessage

ENHANCED = re.compile(r"\d\.\d{1,3}\.\d{1,3} ?", re.ASCII)
"""An enhanced status code (RFC 3463), which a server says again on each line."""


def send(mail: EmailMessage) -> None:
    """Hand it to the server. What smtplib raises passes; `str()` of it is the server's words."""
    try:
        mail.send()
    except smtplib.SMTPException as error:
        error.args = (words(error),)
        raise


def words(error: smtplib.SMTPException) -> str:
    """`550 5.1.1 No such user`, in one line, whichever way smtplib keeps it."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, answer = next(iter(error.recipients.values()))  # a delivery has one recipient
        return _one_line(code, answer)
    if isinstance(error, smtplib.SMTPResponseException):
        return _one_line(error.smtp_code, error.smtp_error)
    return str(error)


def _one_line(code: int, answer: bytes | str) -> str:
    """RFC 6531 lets a server speak UTF-8; what is not that is shown as far as it can be."""
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    lines = text.splitlines()
    told = [str(code), *lines[:1], *(ENHANCED.sub("", line, count=1) for line in lines[1:])]
    return " ".join(" ".join(told).split())
