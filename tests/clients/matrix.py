"""The matrix of docs/openai.md, made of what a full run saw."""
import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/openai.md"
BLOCK = re.compile(r"(?<=<!-- tests/clients/run --full -->\n).*?(?=<!-- end -->)", re.S)
COLUMNS = {"server_tool": "streamed, server tool", "client_tool": "own tool", "structured": "structured output", "image": "image", "usage": "usage",
           "overflow": "context overflow", "stop": "stop"}


def block(rows):
    """The text between the marks. `rows`: {(title, API): {scenario: passed}}; a scenario that a client does not have is a dash."""
    head = ["client", "API", *COLUMNS.values()]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (title, api), cells in rows.items():
        marks = [{True: "yes", False: "no", None: "–"}[cells.get(name)] for name in COLUMNS]
        lines.append("| " + " | ".join([title, api or "own", *marks]) + " |")
    return "\n".join(lines) + "\n"


def published():
    found = BLOCK.search(PAGE.read_text())
    assert found, f"{PAGE} has no marks"
    return found.group()


def publish(made):
    PAGE.write_text(BLOCK.sub(lambda _: made, PAGE.read_text()))
