"""Parts of the work in which ranks meet, or in which all wait for one, with the time that each took.

    reward gather 21.8s            all_reduce of metrics took 512 ms
    val mAP 0.371 took 117 s       Evaluation done in 1712.4 seconds       {'eval_loss': 1.2, 'eval_runtime': 812.3}

Source   own loops of users; transformers (trainer.py, speed_metrics: eval_runtime, in seconds)
Shape    SHAPES, tried by _log_python.read; wait_ms(text) -> milliseconds, None where the text tells no such time
Errors   none
"""

from __future__ import annotations

import re

from probes.catalog.logs.shapes import shape

_PHASE = (
    r"(?i:(?P<name>(?:all[-_]?)?(?:gather|reduce|scatter)|broadcast|barrier|sync)\w{0,12})\b[^,;|\n]{0,60}?"
    r"(?<![\d.])(?P<took>\d{1,6}(?:\.\d{1,6})?) ?(?P<unit>ms|s|sec|secs|seconds)\b(?!/)"
)
_EVALUATED = (
    r"\b(?P<name>(?i:e?val|validat\w{1,4}|evaluat\w{1,4}))\b[^|\n]{0,80}?"
    r"\b(?i:took|in|elapsed|time|after|runtime)[ :=]{1,3}"
    r"(?P<took>\d{1,6}(?:\.\d{1,6})?) ?(?P<unit>s|sec|secs|seconds)\b(?!/)"
)
_RUNTIME = r"(?P<name>eval)_runtime['\"]: {0,2}['\"]?(?P<took>\d{1,6}(?:\.\d{1,6})?)"
_ANY = (  # each with words of which one stands in every such line: they are looked for first, because that is cheap
    (("eval_runtime",), re.compile(_RUNTIME)),
    (("gather", "reduce", "scatter", "broadcast", "barrier", "sync"), re.compile(_PHASE)),
    (("val",), re.compile(_EVALUATED)),
)
FIRST = (shape("phase_time", "eval_runtime", _RUNTIME),)  # before the loss and epoch of its line
SHAPES = (
    *(shape("phase_time", word, _PHASE) for word in ("ather", "educe", "catter", "roadcast", "arrier", "sync")),
    *(shape("phase_time", word, _EVALUATED) for word in ("val", "Val", "VAL")),
)


def wait_ms(text: str) -> int | None:
    small = text.lower()
    likely = (form for words, form in _ANY if any(word in small for word in words))
    found = next((one for form in likely if (one := form.search(text))), None)
    if found is None:
        return None
    return round(float(found["took"]) * (1 if found.groupdict().get("unit") == "ms" else 1000))
