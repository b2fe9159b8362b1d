"""`OtherRun` lives in the database `jobs`, everything else of the lab in `default`."""

from typing import Any

from django.db.models import Model

OTHERS = {"otherrun"}


class LabRouter:
    """runcontract's own tables live in both: a schedule fires beside the runs that it makes."""

    def db_for_read(self, model: type[Model], **_: Any) -> str | None:
        return self._home(model._meta.app_label, model._meta.model_name)

    def db_for_write(self, model: type[Model], **_: Any) -> str | None:
        return self._home(model._meta.app_label, model._meta.model_name)

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **_: Any
    ) -> bool | None:
        if app_label == "runcontract":
            return True
        if app_label == "lab" and model_name is None:
            return None
        return db == (self._home(app_label, model_name) or "default")

    def _home(self, app_label: str, model_name: str | None) -> str | None:
        if app_label != "lab":
            return None
        return "jobs" if model_name in OTHERS else "default"
