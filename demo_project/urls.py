"""The admin, django-rq's pages, and a front door that opens on the failure page."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import include, path

FAILURE_PAGE = "admin:runcontract_failure_changelist"


def front_door(request: HttpRequest) -> HttpResponseRedirect:
    """To the failure page."""
    return redirect(FAILURE_PAGE)


urlpatterns = [
    path("", front_door),
    path("admin/", admin.site.urls),
    path("django-rq/", include("django_rq.urls")),
]
