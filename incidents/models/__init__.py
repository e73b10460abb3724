"""What is remembered. One module per noun; this package is the one place to import models from."""

from incidents.models.people import SignInToken, User

__all__ = ["SignInToken", "User"]
