"""Mails what other apps announce; the delivery row is the run row."""
