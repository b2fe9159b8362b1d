"""Ordinary admin pages."""

from django.contrib import admin

from runcontract.admin import RunContractAdmin

from .models import CurationRun, Edge, Entity


class EdgeInline(admin.TabularInline):  # type: ignore[type-arg]
    """What an entity requires."""

    model = Edge
    fk_name = "source"
    extra = 0


@admin.register(Entity)
class EntityAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The nodes of the graph, heaviest first."""

    list_display = ["name", "version", "licence", "dependents", "pulls_in", "orphan"]
    list_filter = ["orphan", "licence"]
    ordering = ["-dependents", "name"]
    search_fields = ["name", "licence"]
    inlines = [EdgeInline]


admin.site.register(CurationRun, RunContractAdmin)
