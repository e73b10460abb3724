"""`python -m config up`: run Golden15. What `make run` ends in."""

import argparse
import os
import sys

from config.env import SettingError, number, text


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m config", description="Runs Golden15 until it is stopped.")
    parser.add_argument("command", choices=["up"])
    parser.parse_args(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        from config.supervisor import up

        return up(text("HOST", "127.0.0.1"), number("PORT", 8000, 0, 65535))
    except SettingError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
