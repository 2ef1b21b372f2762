"""Shows that the comparison can fail: each deliberate leak, put between client and server, must be found."""
from actors import HIGH
from sides import Side

MOST_SEQUENCES = 120


def of_high(side, key):
    return key in side.high.get("keys", {}).values()


def count_of_all(side, key, method, path, status, headers, value):
    """A list tells how many conversations all people together have."""
    side.made = getattr(side, "made", 0) + (method == "POST" and path == "/api/chat" and status == 200)
    if method == "GET" and path.startswith("/api/conversations") and isinstance(value, dict) and "conversations" in value:
        value["total"] = side.made
    return status, headers, value


def existence(side, key, method, path, status, headers, value):
    """A refusal tells whether a row of somebody else exists."""
    if status == 404 and not of_high(side, key) and any(found in path for ids in side.high["ids"].values() for found in ids):
        status = 403
    return status, headers, value


def shared_statistics(side, key, method, path, status, headers, value):
    """Scores depend on how many documents the other tenant has."""
    side.documents = getattr(side, "documents", 0) + (of_high(side, key) and method == "POST" and path == "/api/knowledge/documents" and status == 200)
    if path == "/api/knowledge/search" and status == 200 and not of_high(side, key):
        for result in value["results"]:
            result["bm25"] = round(result["bm25"] * (1 + side.documents / 1000), 6)
    return status, headers, value


def header(side, key, method, path, status, headers, value):
    """A header counts the requests of everybody."""
    side.requests = getattr(side, "requests", 0) + 1
    return status, {**headers, "x-request-number": str(side.requests)}, value


def foreign_row(side, key, method, path, status, headers, value):
    """A list has a row of the other tenant once it has one."""
    if of_high(side, key) and method == "POST" and path == "/api/chat" and status == 200:
        side.row = value["message"]["content"]
    if not of_high(side, key) and method == "GET" and path.startswith("/api/tool-calls") and isinstance(value, dict) and "tool_calls" in value and hasattr(side, "row"):
        value["tool_calls"].append({"tenant": HIGH, "text": side.row})
    return status, headers, value


DEFECTS = (count_of_all, existence, shared_statistics, header, foreign_row)


def prove(run, leak):
    missed = []
    for defect in DEFECTS:
        sides = [Side("left", defect), Side("right", defect)]
        try:
            run(sides, 0, MOST_SEQUENCES)
            missed.append(defect.__name__)
            print(f"MISSED {defect.__name__}", flush=True)
        except leak as found:
            print(f"found  {defect.__name__}: {str(found).splitlines()[0]}", flush=True)
        finally:
            for side in sides:
                side.close()
    if missed:
        raise SystemExit(1)
