"""Collections have rights by role, which count on every route and at once, on both databases."""
from fakes import Model
from server import Server

SECRET = "Das Gehaltsband lautet xylophonquartett."
HIDDEN = "hr-secret"


def check_a_guest_reads_a_hidden_collection_by_no_route():
    model = Model()
    server = Server(model)
    try:
        rights = lambda read: server.call("PUT", f"/api/knowledge/collections/{HIDDEN}/rights", {"read": read, "write": ["lead"]})
        assert rights(["lead"])[1] == {"collection": HIDDEN, "read": ["lead"], "write": ["lead"], "trust": "trusted"}
        server.call("POST", "/api/knowledge/documents", {"collection": HIDDEN, "documents": [{"id": "pay", "title": "Pay", "text": SECRET}]})
        key = lambda user: server.call("POST", "/api/keys", {"user_id": user, "scopes": ["chat", "tools", "read"]})[1]["key"]
        guest, lead = key(5), key(2)
        search = lambda who, name: server.call("POST", "/api/knowledge/search", {"query": "xylophonquartett", "collection": name}, key=who)
        tool = lambda who, name: server.call("POST", "/api/tools/search_knowledge_base/invoke", {"input": {"query": "xylophonquartett"}}, key=who,
                                             headers={"x-collection-id": name})[1]["data"]
        for name in (HIDDEN, "no-such-collection"):
            answers = [search(guest, name)] + [server.call(method, path, key=guest) for method, path in (
                ("GET", f"/api/knowledge/documents?collection={name}"), ("GET", f"/api/knowledge/documents/pay?collection={name}"),
                ("DELETE", f"/api/knowledge/documents/pay?collection={name}"), ("GET", f"/api/knowledge/collections/{name}"))]
            assert [(status, answer["error"]["code"]) for status, answer, _ in answers] == [(404, "not_found")] * 5, (name, answers)
            assert tool(guest, name)["sources"] == [], name
        assert server.call("GET", "/api/knowledge/collections", key=guest)[1]["collections"] == []
        assert search(lead, HIDDEN)[1]["results"][0]["content"] == SECRET and tool(lead, HIDDEN)["sources"][0]["snippet"] == SECRET
        rights(["*"])
        assert search(guest, HIDDEN)[1]["results"][0]["content"] == SECRET and tool(guest, HIDDEN)["sources"][0]["snippet"] == SECRET
        rights([])
        assert search(guest, HIDDEN)[0] == search(lead, HIDDEN)[0] == 404 and tool(guest, HIDDEN)["sources"] == []
    finally:
        server.close()
        model.close()
