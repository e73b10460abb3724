#!/usr/bin/env python3
"""Django's command line for Golden15."""

import os
import sys

from config.env import SettingError


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError:
        print("Django is not installed for this Python. Use .venv/bin/python, which `make run` makes.", file=sys.stderr)
        return 2
    try:
        execute_from_command_line(sys.argv)
    except SettingError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
