"""The admin, with the failure page in it, django-rq's own pages, and the demo's front page."""

from django.contrib import admin
from django.urls import include, path

from demo_project.demo.front import story_graph, story_page

urlpatterns = [
    path("", story_page, name="story"),
    path("graph.json", story_graph, name="story-graph"),
    path("admin/", admin.site.urls),
    path("django-rq/", include("django_rq.urls")),
]
