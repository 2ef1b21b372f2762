"""Flights: the flow of the seed document against faithful providers, partial answers, quotas and tokens across restarts."""
import datetime
import json
import os
import stat
import subprocess
import threading
import time

from databases import Sqlite, postgres_only
from fakes import Model, calls, text
from flight_fakes import Flights, SEATS_KEY
from server import Replica, Server

QUERY = {"origin": "FRA", "destination": "JFK", "depart_date": "2025-03-15", "cabin": "BUSINESS", "award_only": True}


def on(day):
    """The test clock, set to noon of this day."""
    noon = datetime.datetime.fromisoformat(day + "T12:00:00+00:00").timestamp()
    return {"WERKRUF_CLOCK_OFFSET_S": str(int(noon - time.time()))}


class Scenario:
    def __init__(self, day="2025-03-01", **env):
        self.model, self.flights = Model(), Flights()
        self.server = Server(self.model, env={**self.flights.env(), **on(day), **env})

    def __enter__(self):
        return self.model, self.flights, self.server

    def __exit__(self, *_):
        self.server.close()
        self.model.close()
        self.flights.close()


def providers(data):
    return {one["name"]: (one["status"], one["reason"]) for one in data["providers"]}


def check_flights_flow_of_the_seed():
    with Scenario() as (model, flights, server):
        model.script = [calls(("search_flights", QUERY, "call_abc123")), text("not requested twice")]
        received = server.stream("Suche mir Business Class Flüge von FRA nach JFK am 15. März 2025", user=2)
        named = [(number, name) for number, name, _ in received if name != "assistant_token"]
        assert named == [(1, "init"), (2, "tool_started"), (3, "tool_finished"), (4, "final")], named
        final = received[-1][2]
        answer = final["message"]["content"]
        assert "85.000 Meilen + 450,00 $" in answer and "FRA 10:30 → JFK 13:15" in answer, answer
        assert "".join(d["content"] for _, n, d in received if n == "assistant_token") == answer
        assert len(model.requests) == 1 and final["usage"]["model_calls"] == 1, "no second model call"
        started = received[1][2]
        assert started["call_id"] == "call_abc123" and started["arguments"] == QUERY
        request = {"origin": "FRA", "destination": "JFK", "depart_date": "2025-03-15", "return_date": None, "cabin": "BUSINESS", "pax": 1, "award_only": True}
        assert final["session_state"]["last_flight_request"] == request and "pending_flight_request" not in final["session_state"], final["session_state"]
        result = final["tool_result"]
        assert result["kind"] == "results" and result["raw"]["amadeusResult"] is None
        seats = result["raw"]["seatsResult"]
        assert seats["success"] is True and seats["results"]["count"] == 2
        assert seats["results"]["flights"][0]["price"] == "85.000 Meilen + 450,00 $" and seats["results"]["flights"][0]["taxes"] == {"amount": 450.0, "currency": "USD"}
        assert providers(result) == {"seatsaero": ("ok", None), "amadeus": ("skipped", "award_only"), "duffel": ("skipped", "not_configured")}

        [call] = server.rows("SELECT * FROM tool_calls")
        assert (call["tool_name"], call["status"], call["call_id"], call["attempt"]) == ("search_flights", "succeeded", "call_abc123", 1)
        assert json.loads(call["request"]) == QUERY and json.loads(call["response"])["kind"] == "results"
        assert call["created_at"].startswith("2025-03-01T12:") and call["started_at"] and call["finished_at"]
        roles = [row["role"] for row in server.rows("SELECT role FROM messages ORDER BY seq")]
        assert roles == ["user", "assistant", "tool", "assistant"], roles
        [conversation] = server.rows("SELECT state FROM conversations")
        assert json.loads(conversation["state"])["last_flight_request"] == request
        [search] = flights.searches
        assert search["cabins"] == "business" and search["start_date"] == search["end_date"] == "2025-03-15" and flights.tokens == 0

        model.script = [calls(("select_itinerary", {"index": 2}, "call_2"))]
        status, body, _ = server.chat("Nimm den zweiten", final.get("conversation_id") or received[0][2]["conversation_id"], user=2)
        assert status == 200 and body["session_state"]["selected_itineraries"][0]["program"] == "united", body


def check_flights_use_the_test_clock_for_today():
    with Scenario() as (_, flights, server):
        status, body, _ = server.call("POST", "/api/tools/search_flights/invoke", {"input": {**QUERY, "depart_date": "2025-02-28"}})
        assert status == 200 and body["error"]["type"] == "VALIDATION" and body["error"]["code"] == "date_in_past", body
        assert flights.searches == []


def check_flights_wait_for_a_hanging_provider_only_until_the_deadline():
    with Scenario(FLIGHTS_DEADLINE_MS="1500") as (_, flights, server):
        flights.seats = lambda endpoint, query: time.sleep(9)
        both = {**QUERY, "award_only": False}
        server.call("POST", "/api/tools/test_echo/invoke", {"input": {"value": 1}})
        began = time.monotonic()
        status, body, _ = server.call("POST", "/api/tools/search_flights/invoke", {"input": both})
        took = time.monotonic() - began
        assert status == 200 and providers(body["data"])["seatsaero"] == ("failed", "timeout"), body
        assert providers(body["data"])["amadeus"] == ("ok", None) and body["data"]["cash"][0]["price_total_all_travellers"] == {"amount": "795.39", "currency": "EUR"}
        assert body["meta"]["took_ms"] <= 1550 and took < 2.5, (body["meta"], took)
        assert body["meta"]["source_counts"] == {"seatsaero": 0, "amadeus": 1, "duffel": 0}


def check_flights_quota_and_token_survive_a_restart():
    with Scenario(SEATSAERO_DAILY_QUOTA="3", FLIGHTS_CACHE_S="0") as (_, flights, server):
        search = lambda day: server.call("POST", "/api/tools/search_flights/invoke", {"input": {**QUERY, "award_only": False, "depart_date": day}})[1]["data"]
        search("2025-03-15"), search("2025-03-16")
        if isinstance(server.database, Sqlite):
            assert stat.S_IMODE(os.stat(server.db + ".key").st_mode) == 0o600
        [stored] = server.rows("SELECT provider, account, sealed FROM provider_tokens")
        # PostgreSQL prints bytes as \\x and hex digits.
        sealed = bytes.fromhex(stored["sealed"][2:]) if isinstance(stored["sealed"], str) else bytes(stored["sealed"])
        assert (stored["provider"], stored["account"]) == ("amadeus", "test") and len(sealed) > 28 and b"token-1" not in sealed
        assert server.stop() == 0
        server.start()
        search("2025-03-17")
        gone = search("2025-03-18")
        assert providers(gone)["seatsaero"] == ("failed", "quota") and providers(gone)["amadeus"] == ("ok", None), gone["providers"]
        assert (len(flights.searches), flights.tokens, len(flights.offer_queries)) == (3, 1, 4)
        flights.good_token = None
        assert providers(search("2025-03-19"))["amadeus"] == ("ok", None) and flights.tokens == 2


def check_flights_ten_concurrent_searches_fetch_one_new_token():
    with Scenario(FLIGHTS_CACHE_S="0") as (_, flights, server):
        def search(day, into):
            body = {"input": {**QUERY, "award_only": False, "depart_date": f"2025-03-{day:02}"}}
            into.append(providers(server.call("POST", "/api/tools/search_flights/invoke", body)[1]["data"])["amadeus"])

        for expired, tokens in ((False, 1), (True, 2)):
            if expired:
                flights.good_token = None
            done = []
            threads = [threading.Thread(target=search, args=(day, done)) for day in range(10, 20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert done == [("ok", None)] * 10, done
            assert flights.tokens == tokens, flights.tokens


@postgres_only
def check_flights_two_servers_share_quota_and_token():
    with Scenario(SEATSAERO_DAILY_QUOTA="7", FLIGHTS_CACHE_S="0") as (_, flights, server):
        other = Replica(server)
        try:
            done = []

            def search(day):
                body = {"input": {**QUERY, "award_only": False, "depart_date": f"2025-03-{day:02}"}}
                done.append(providers((server, other)[day % 2].call("POST", "/api/tools/search_flights/invoke", body)[1]["data"]))

            threads = [threading.Thread(target=search, args=(day,)) for day in range(10, 20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            # Servers share no rate limit: a provider may reject a request as too fast, but never because of a token.
            assert len(done) == 10 and all(one["amadeus"] in (("ok", None), ("failed", "quota")) for one in done), done
            assert flights.tokens == 1, flights.tokens
            assert sorted(one["seatsaero"] for one in done) == [("failed", "quota")] * 3 + [("ok", None)] * 7, done
            assert len(flights.searches) == 7, len(flights.searches)
        finally:
            other.close()


@postgres_only
def check_flights_stored_tokens_need_a_key_on_postgres():
    flights = Flights()
    try:
        server = Server(None, env={"WERKRUF_MODEL": "offline"})
        try:
            server.stop()
            env = {name: value for name, value in {**server.env, **flights.env()}.items() if name != "WERKRUF_SECRET_KEY"}
            output = subprocess.run(server.arguments + ["--json"], env=env, cwd=server.folder.name, capture_output=True, text=True, timeout=30)
            assert output.returncode == 1 and "secret_key_required" in output.stdout + output.stderr, (output.stdout, output.stderr)
        finally:
            server.close()
    finally:
        flights.close()


def check_flights_identical_requests_send_one_provider_call():
    with Scenario() as (_, flights, server):
        for cached in (False, True):
            _, body, _ = server.call("POST", "/api/tools/search_flights/invoke", {"input": QUERY})
            assert body["data"]["providers"][0]["cached"] is cached
        assert len(flights.searches) == 1


def check_flights_functions_of_the_seed():
    with Scenario(FLIGHTS_DEADLINE_MS="1000", FLIGHTS_CACHE_S="0") as (_, flights, server):
        body = {"origin": "FRA", "destination": "JFK", "departureDate": "2025-03-15", "returnDate": "2025-03-20", "travelClass": "BUSINESS", "adults": 1,
                "children": 0, "infants": 0, "flexibility": 0, "includeReturnAwards": True, "maxResults": 5}
        status, seats, _ = server.call("POST", "/functions/v1/seatsaero-flight-search", body, user=4)
        assert status == 200 and seats["success"] and seats["results"]["count"] == 2 == seats["returnResults"]["count"], seats
        flight = seats["results"]["flights"][0]
        assert flight["price"] == "85,000 miles + $450.00" and flight["taxes"] == {"amount": 450.0, "currency": "USD"} and flight["bookingLinks"] == {"Book": "https://example.org/" + flight["id"]}
        assert flight["outbound"]["departure"] == {"airport": "FRA", "time": "2025-03-15T10:30:00"}
        status, offers, _ = server.call("POST", "/functions/v1/amadeus-flight-search", {**body, "debug": True})
        assert status == 200 and offers["results"]["flights"][0]["type"] == "flight-offer" and offers["dictionaries"]["carriers"] == {"LH": "LUFTHANSA"}
        assert flights.offer_queries[0]["returnDate"] == "2025-03-20" and flights.offer_queries[0]["travelClass"] == "BUSINESS"

        def fails(path, change, status, kind, code):
            answer = server.call("POST", "/functions/v1/" + path, {**body, **change})
            assert answer[0] == status and answer[1]["success"] is False and (answer[1]["error"]["type"], answer[1]["error"]["code"]) == (kind, code), answer[:2]

        fails("seatsaero-flight-search", {"origin": None}, 400, "VALIDATION", "invalid_arguments")
        fails("amadeus-flight-search", {"departureDate": "2025-02-01"}, 400, "VALIDATION", "date_in_past")
        flights.seats = lambda endpoint, query: endpoint.answer(500, {})
        fails("seatsaero-flight-search", {}, 502, "UPSTREAM", "upstream_error")
        flights.seats = lambda endpoint, query: time.sleep(3)
        fails("seatsaero-flight-search", {}, 504, "TIMEOUT", "timeout")
        flights.offers = lambda endpoint, query: endpoint.refused(429, 38195, "Quota limit exceeded")
        fails("amadeus-flight-search", {}, 429, "RATE_LIMIT", "quota")
        flights.seats = lambda endpoint, query: endpoint.answer(429, "rate limited", kind="text/plain")
        fails("seatsaero-flight-search", {}, 429, "RATE_LIMIT", "quota")


def check_flights_without_keys_are_sample_data():
    server = Server()
    try:
        for user, message, expected in ((2, "Suche mir Business Class Flüge von FRA nach JFK am 15. März", "Beispieldaten"),
                                    (4, "Find business flights from FRA to JFK on March 15", "sample data"),
                                    (1, "Busca vuelos en business de Madrid a Nueva York el 15 de marzo", "datos de ejemplo")):
            status, body, _ = server.chat(message, user=user)
            assert status == 200 and expected in body["message"]["content"] and body["tool_result"]["sandbox"] is True, body
        status, body, _ = server.chat("Flüge von FRA nach FRA am 15. März in Business", user=2)
        assert status == 200 and "gleich (FRA)" in body["message"]["content"], body
        status, body, _ = server.chat("Ich suche einen Flug nach Tokio", user=2)
        assert body["tool_result"]["missing"] == ["origin", "depart_date", "cabin"] and body["session_state"]["pending_flight_request"] == {"destination": "TYO"}, body
    finally:
        server.close()


def check_flights_inspect_reads_files():
    server = Server()
    try:
        page = json.dumps({"data": [{"ID": "a", "Date": "2025-03-15", "Source": "united", "Route": {"OriginAirport": "FRA", "DestinationAirport": "JFK"},
                                     "YAvailable": True, "YMileageCost": "40000", "YTotalTaxes": 560, "TaxesCurrency": "USD"}], "count": 1})
        output = server.cli("flights", "inspect", "--provider", "seatsaero", "-", stdin=page)
        offer = json.loads(output.stdout)["offers"][0]
        assert output.returncode == 0 and (offer["miles"], offer["taxes"], offer["seats_left"]) == (40000, {"amount": "5.60", "currency": "USD"}, None)
        assert json.loads(server.cli("flights", "inspect", "--provider", "seatsaero", "--cabin", "business", "-", stdin=page).stdout)["offers"] == []
        assert server.cli("flights", "inspect", "--provider", "amadeus", "-", stdin="<html>").returncode == 1
        assert server.cli("flights", "inspect", "--provider", "amadeus", "--cabin", "cellar", "-", stdin=page).returncode == 2
    finally:
        server.close()


def check_flights_settings_are_checked():
    server = Server()
    try:
        broken = {"AMADEUS_API_KEY": "x", "AMADEUS_ENV": "moon", "FLIGHTS_DEADLINE_MS": "soon", "WERKRUF_SECRET_KEY": "short", "SEATSAERO_BASE_URL": "ftp://x"}
        output = server.cli("config", "check", "--json", env=broken)
        paths = {one["path"] for one in json.loads(output.stdout)["violations"]}
        assert output.returncode == 1 and paths == {"AMADEUS_API_SECRET", "AMADEUS_ENV", "FLIGHTS_DEADLINE_MS", "WERKRUF_SECRET_KEY", "SEATSAERO_BASE_URL"}, output.stdout
        assert server.cli("config", "check", env={"SEATSAERO_API_KEY": SEATS_KEY}).returncode == 0
    finally:
        server.close()
