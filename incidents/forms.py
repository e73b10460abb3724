"""What people type. Checked here for shape only; services decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from incidents.models import Fleet
from incidents.services.fleet import Login


class LoginForm(forms.Form):
    """How nodes are reached; all optional."""

    user = forms.CharField(required=False, max_length=32, label="User")
    port = forms.IntegerField(required=False, min_value=1, max_value=65535, label="Port")
    jump = forms.CharField(required=False, max_length=300, label="Jump host")

    @property
    def login(self) -> Login:
        said = self.cleaned_data
        return Login(said["user"], said["port"], said["jump"])


class AddNodesForm(LoginForm):
    nodes = forms.CharField(
        label="Nodes",
        max_length=500_000,
        widget=forms.Textarea(attrs={"rows": 5, "spellcheck": "false", "placeholder": "gpu-[001-064]"}),
        error_messages={"required": "Type or paste at least one node."},
    )
    field_order = ["nodes", "user", "port", "jump"]


class NodeForm(LoginForm):
    address = forms.CharField(required=False, max_length=253, label="Address")
    field_order = ["address", "user", "port", "jump"]


class PasteKeysForm(forms.Form):
    keys = forms.CharField(
        label="Keys",
        max_length=5_000_000,
        widget=forms.Textarea(attrs={"rows": 5, "spellcheck": "false"}),
        error_messages={"required": "Paste at least one key or fingerprint."},
    )


class InFleetForm(forms.Form):
    """What is opened in a fleet, which is asked for where the person has several."""

    def __init__(self, *args: Any, fleets: Sequence[Fleet], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fleets = {fleet.name: fleet for fleet in fleets}
        if len(fleets) > 1 or "fleet" in self.data:
            names = [(name, name) for name in self.fleets]
            wrong = "You may not declare in this fleet, or not any more. Choose one of these."
            self.fields["fleet"] = forms.ChoiceField(
                label="Fleet",
                choices=[("", "choose"), *names],
                error_messages={"required": "Say in which fleet.", "invalid_choice": wrong},
            )

    def clean(self) -> dict[str, Any]:
        said = super().clean() or {}
        if "fleet" in self.fields:
            return {**said, "fleet": self.fleets.get(said.get("fleet", ""))}
        return {**said, "fleet": next(iter(self.fleets.values()))}


class JudgeFilesForm(InFleetForm):
    """Beside the files, which the view takes."""

    severity = forms.ChoiceField(
        label="Severity",
        initial="3",
        required=False,
        choices=[("1", "SEV1, all hands"), ("2", "SEV2"), ("3", "SEV3"), ("4", "SEV4, can wait")],
    )
    title = forms.CharField(label="Title", required=False, max_length=300)

    def clean(self) -> dict[str, Any]:
        said = super().clean()
        return {**said, "severity": said.get("severity") or "3"}


class DeclareForm(InFleetForm):
    """One field counts; the others have defaults."""

    what = forms.CharField(
        label="Which job, or which nodes?",
        max_length=500_000,
        widget=forms.TextInput(
            attrs={"autofocus": True, "spellcheck": "false", "placeholder": "llm-70b-run7 or gpu-[001-064]"}
        ),
        error_messages={"required": "Type a job's name, or its nodes."},
    )
    severity = forms.ChoiceField(
        label="Severity",
        initial="2",
        choices=[("1", "SEV1, all hands"), ("2", "SEV2"), ("3", "SEV3"), ("4", "SEV4, can wait")],
    )
    title = forms.CharField(label="Title", required=False, max_length=300)
    add = forms.BooleanField(required=False, widget=forms.HiddenInput)
    log_paths = forms.CharField(
        label="Log files",
        required=False,
        max_length=5000,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "placeholder": "/logs/llm-70b-run7/*.log"}),
    )

    @property
    def patterns(self) -> list[str]:
        """The log files, one pattern per line."""
        return str(self.cleaned_data["log_paths"]).replace("\r\n", "\n").split("\n")
