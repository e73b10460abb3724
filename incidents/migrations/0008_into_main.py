from django.db import migrations

SCOPED = ("Node", "Job", "Incident", "AlertSource", "SuiteRun")


def into_main(apps, schema_editor):
    models = {name: apps.get_model("incidents", name) for name in (*SCOPED, "User", "Fleet", "Membership")}
    if not any(models[name].objects.exists() for name in (*SCOPED, "User")):
        return
    main, _ = models["Fleet"].objects.get_or_create(name="main")
    for name in SCOPED:
        models[name].objects.update(fleet=main)
    for user in models["User"].objects.filter(is_superuser=False):
        models["Membership"].objects.create(user=user, fleet=main, role=user.role)


def back(apps, schema_editor):
    """One role per person: the highest of those that they have."""
    roles = ["viewer", "responder", "commander", "admin"]
    for user in apps.get_model("incidents", "User").objects.all():
        had = apps.get_model("incidents", "Membership").objects.filter(user=user).values_list("role", flat=True)
        user.role = max(had, key=roles.index, default="viewer")
        user.save(update_fields=["role"])


class Migration(migrations.Migration):
    dependencies = [("incidents", "0007_fleets")]

    operations = [migrations.RunPython(into_main, back)]
