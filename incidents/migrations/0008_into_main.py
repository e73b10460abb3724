from django.db import migrations

SCOPED = ("Node", "Job", "Incident", "AlertSource", "SuiteRun")


def into_main(apps, schema_editor):
    models = {name: apps.get_model("incidents", name) for name in (*SCOPED, "User", "Fleet", "Membership")}
    if not any(models[name].objects.exists() for name in (*SCOPED, "User")):
        return
    main = models["Fleet"].objects.create(name="main")
    for name in SCOPED:
        models[name].objects.update(fleet=main)
    for user in models["User"].objects.filter(is_superuser=False):
        models["Membership"].objects.create(user=user, fleet=main, role=user.role)


class Migration(migrations.Migration):
    dependencies = [("incidents", "0007_fleets")]

    operations = [migrations.RunPython(into_main, migrations.RunPython.noop)]
