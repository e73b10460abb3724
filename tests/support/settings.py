"""The product's settings with a data folder of this test run's own, whatever the person has in their environment."""

import atexit
import os
import shutil
import tempfile

_folder = tempfile.mkdtemp(prefix="golden15-test-")
atexit.register(shutil.rmtree, _folder, ignore_errors=True)
os.environ["GOLDEN15_DATA"] = _folder

from config.settings import *  # noqa: E402, F403

DRILL_SECONDS = 0
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast; no test is about hashing
