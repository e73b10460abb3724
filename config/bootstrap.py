"""From a bare machine to a virtual environment with the locked requirements; then `python -m config up`.

Run as a script by whatever Python there is. Standard library only, and in the syntax of Python 3.6, so that an old one
can read it and say that it is too old. Every expected trouble is one line that says what to do next.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

BASE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(BASE, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "golden15-installed")
LOG = os.path.join(VENV, "golden15-pip.log")
LOCKS = {"run": "requirements.lock", "dev": "requirements-dev.lock"}
OLDEST = (3, 11)
NEWER = ("python3.13", "python3.12", "python3.11")


class Trouble(Exception):
    """What went wrong and what to do next, in one line."""


def main(arguments):
    what = arguments[0] if len(arguments) == 1 else ""
    if what not in LOCKS:
        print("usage: python3 config/bootstrap.py run | dev", file=sys.stderr)
        return 2
    try:
        if fcntl is None:
            raise Trouble("Golden15 runs on Linux and macOS. On Windows use WSL.")
        use_new_python(arguments)
        install(what)
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped. Run it again to go on.", file=sys.stderr)
        return 130
    if what == "run":
        os.chdir(BASE)
        sys.stdout.flush()
        os.execv(PYTHON, [PYTHON, "-m", "config", "up"])
    return 0


def use_new_python(arguments):
    """Go on in a Python new enough: this one, or one found on PATH. Trouble when there is none."""
    if sys.version_info >= OLDEST:
        return
    for name in NEWER:
        path = shutil.which(name)
        # A pyenv shim is on PATH for versions that do not run here: only running it tells.
        if path and quiet([path, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]) == 0:
            os.execv(path, [path, os.path.abspath(__file__)] + arguments)
    raise Trouble(
        "Golden15 needs Python 3.11 or newer, and %s is %d.%d. Install a newer one (Debian 12, Ubuntu 24.04: "
        "apt install python3 python3-venv) or name one: make run PYTHON=/path/to/python3.12"
        % (sys.executable or "python3", sys.version_info[0], sys.version_info[1])
    )


def install(what):
    """Make the virtual environment and install the lock file's packages, unless the stamp says that it was done."""
    lock = os.path.join(BASE, LOCKS[what])
    wanted = fingerprint(lock)
    if is_installed(wanted):
        return
    check_writable()
    folder = os.open(BASE, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # `make run` and `make test` at the same time
        if is_installed(wanted):
            return
        make_venv()
        print("Installing %d packages into .venv. This happens once." % count_packages(lock), flush=True)
        pip(lock)
        # The development lock holds everything of the other one, at the same versions.
        names = list(LOCKS.values()) if what == "dev" else [LOCKS[what]]
        write_stamp([fingerprint(os.path.join(BASE, name)) for name in names])
    finally:
        os.close(folder)


def fingerprint(lock):
    with open(lock, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def is_installed(wanted):
    if not os.path.exists(PYTHON):  # also when the Python it links to is gone
        return False
    try:
        with open(STAMP) as file:
            return wanted in file.read().split()
    except OSError:
        return False


def write_stamp(fingerprints):
    with open(STAMP + ".new", "w") as file:
        file.write("\n".join(fingerprints) + "\n")
    os.replace(STAMP + ".new", STAMP)


def check_writable():
    folder = VENV if os.path.isdir(VENV) else BASE
    try:
        probe = os.path.join(folder, ".golden15-write-%d" % os.getpid())
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(probe)
    except OSError as error:
        raise Trouble(
            "Golden15 cannot write to %s (%s). Clone it into a folder of your own and run it there."
            % (folder, (error.strerror or str(error)).lower())
        )


def make_venv():
    """A virtual environment with a Python that still runs; an old broken one is replaced."""
    if quiet([PYTHON, "-c", "import pip, sys; sys.exit(sys.version_info < (3, 11))"]) == 0:
        return
    if quiet([sys.executable, "-c", "import venv, ensurepip"]) != 0:
        package = "python%d.%d-venv" % tuple(sys.version_info[:2])
        raise Trouble("Python's venv module is missing. Install it (Debian, Ubuntu: apt install %s)." % package)
    status, output = captured([sys.executable, "-m", "venv", "--clear", VENV])
    if status != 0:
        raise Trouble("Cannot make the virtual environment %s: %s" % (VENV, last_line(output)))


def pip(lock):
    """Install exactly what the lock file names. Trouble in one line; pip's own words go into a log file."""
    command = [PYTHON, "-m", "pip", "install", "--require-hashes", "-r", lock]
    command += ["--quiet", "--no-input", "--disable-pip-version-check", "--retries", "2", "--no-warn-script-location"]
    status, output = captured(command)
    if status == 0:
        return
    with open(LOG, "w") as file:
        file.write(output)
    offline = "NewConnectionError|Max retries|ConnectionError|name resolution|Could not find a version|No matching"
    offline += "|unreachable|timed out|ConnectTimeout|ReadTimeout|ProxyError|SSLError|Connection broken"
    if "THESE PACKAGES DO NOT MATCH" in output:
        raise Trouble("A downloaded package is not the one in %s: nothing was installed. Details: %s" % (lock, LOG))
    if "No space left" in output:
        raise Trouble("The disk is full: cannot install into %s. Free about 500 MB and run it again." % VENV)
    if re.search(offline, output):
        raise Trouble(
            "No network to install from: pip cannot reach its package index, or the index lacks a package. "
            "Check the network, proxy and PIP_INDEX_URL, then run it again. Details: %s" % LOG
        )
    raise Trouble("pip failed: %s. Details: %s" % (last_line(output).rstrip("."), LOG))


def count_packages(lock):
    with open(lock) as file:
        return sum(1 for line in file if re.match(r"[A-Za-z0-9]", line))


def quiet(command):
    """Exit status of a command that may not even start."""
    return captured(command)[0]


def captured(command):
    """Exit status and output, both streams together."""
    try:
        done = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        return 127, str(error)
    output, _ = done.communicate()
    return done.returncode, output.decode("utf-8", "replace")


def last_line(output):
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("[notice]")]
    return lines[-1] if lines else "no output"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
