"""The admin, django-rq's pages, and a front door that opens on the failure page."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import NoReverseMatch, include, path, reverse


def failure_page() -> str:
    """The address of the failure page; the admin's own front page where there is none."""
    try:
        return reverse("admin:runcontract_failure_changelist")
    except NoReverseMatch:
        return reverse("admin:index")


def front_door(request: HttpRequest) -> HttpResponseRedirect:
    """To the failure page."""
    return redirect(failure_page())


urlpatterns = [
    path("", front_door),
    path("admin/", admin.site.urls),
    path("django-rq/", include("django_rq.urls")),
]
