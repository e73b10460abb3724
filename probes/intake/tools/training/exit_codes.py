"""What `timeout 20 nvidia-smi` ended with on a node, where the shell printed it: 124 and 137 tell of no answer.

Source   timeout(1) of coreutils: 124 when the time ran out, 137 when it had to kill; nvidia-smi(1), RETURN VALUE: 15
         for a GPU that fell off the bus
Shape    facts gpu.verdicts; by the command, which is the part's name
Errors   ParseError where no code is printed
"""

from __future__ import annotations

import re

from probes.core import ParseError
from probes.intake.tools import Tool
from probes.intake.tools.gpu.gpu_verdicts import Verdict, Verdicts, findings

_COMMAND = re.compile(r"timeout_.{0,60}(?:nvidia-smi|rocm-smi|amd-smi)")
_CODE = re.compile(
    r"(?:^|[^\n]{0,40}\b(?:rc|exit(?:ed)?(?: ?(?:code|status))?|status|ret)\s{0,2}[=:]?\s{0,2})(\d{1,3})\s{0,4}$", re.M
)
_ALONE = re.compile(r"\s{0,8}(\d{1,3})\s{0,8}")


def _code(text: str) -> int | None:
    found = _ALONE.fullmatch(text) or next((one for one in _CODE.finditer(text) if not one[0].strip().isdigit()), None)
    return int(found[1]) if found else None


def fits(head: str, name: str) -> bool:
    if len(head) > 400 or not _COMMAND.search(name) or (_ALONE.fullmatch(head) and "echo" not in name):
        return False  # a number alone may be a count
    return _code(head) is not None


def read(text: str) -> Verdicts:
    code = _code(text)
    if code is None:
        raise ParseError("how a tool ended: no code of it")
    told = {
        124: Verdict("gpu.driver_no_answer", "bad", None, None, "does not answer: the tool ran out of its time"),
        137: Verdict("gpu.driver_no_answer", "bad", None, None, "does not answer: the tool had to be killed"),
        15: Verdict("gpu.lost", "bad", None, None, "is lost to the driver"),
    }.get(code)
    return Verdicts(f"exit code {code}", (told,) if told else ())


TOOL = Tool("exit codes of GPU tools", "gpu.verdicts", fits, read, findings)
