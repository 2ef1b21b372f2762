"""The commands of a page and the output that it shows.

A block ```sh is run. A block ```text directly after it is its whole output: `…` stands for any text within a line, a line with only `…` for any
lines. The commands of ```sh must succeed, those of ```sh fails must not.
"""
import re
from dataclasses import dataclass

BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.M | re.S)
ANY_LINES = "…"


@dataclass
class Step:
    line: int
    commands: str
    output: str
    fails: bool


def steps(text):
    """The steps of a page, in order."""
    found, after = [], None
    for block in BLOCK.finditer(text):
        info, body = block["info"].split(), block["body"]
        directly = after is not None and not text[after:block.start()].strip()
        if info[:1] == ["sh"]:
            found.append(Step(text.count("\n", 0, block.start()) + 1, body, "", "fails" in info))
            after = block.end()
        elif info[:1] == ["text"] and directly:
            found[-1].output, after = body, None
        else:
            after = None
    return found


def pattern(output):
    """A regular expression for the whole output that a page shows."""
    lines = []
    for line in output.splitlines():
        if line.strip() == ANY_LINES:
            lines.append(r"(?:[^\n]*\n)*?")
        else:
            lines.append(r"[^\n]*?".join(re.escape(part) for part in line.rstrip().split("…")) + r"[ \t]*\n")
    return re.compile("".join(lines))
