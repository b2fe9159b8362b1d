"""The address of a run: the whole of what travels through Redis.

`app-model-pk-lease`, in the letters that RQ takes for a job id. The lease makes the message of
each queueing another one, so an old message can never start a newer claim.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

_FORM = re.compile(r"([A-Za-z_]\w*)-([a-z_]\w*)-(-?\d{1,20}|[0-9a-f]{32})-(\d{1,19})", re.ASCII)

_TOO_BIG = 2**63
"""The first number that Postgres's bigint cannot hold."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a queued run is found: its model's label, its key and the lease it was queued under."""

    label: str
    pk: int | uuid.UUID
    lease: int

    def __str__(self) -> str:
        key = self.pk.hex if isinstance(self.pk, uuid.UUID) else self.pk
        return f"{self.label.replace('.', '-')}-{key}-{self.lease}"

    @classmethod
    def parse(cls, message: bytes | str) -> Address | None:
        """The address that a message spells; None for anything else, whatever its bytes."""
        text = message if isinstance(message, str) else message[:256].decode("latin-1")
        found = _FORM.fullmatch(text)
        if found is None:
            return None
        app, model, key, lease = found.groups()
        pk = uuid.UUID(key) if len(key) == 32 else int(key)
        if int(lease) >= _TOO_BIG or (isinstance(pk, int) and abs(pk) >= _TOO_BIG):
            return None
        return cls(f"{app}.{model}", pk, int(lease))
