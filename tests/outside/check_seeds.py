"""Details that the seed documents name, checked from outside: fields, headers, rows, limits."""
from check_flights import Scenario as FlightScenario
from check_knowledge import scenario
from check_turns import Scenario
from fakes import calls, text


def check_seeds_failed_results_are_found_by_the_printed_query():
    with Scenario() as (model, _, server):
        model.script = [calls(("test_echo", {"value": 1}), ("no_such_tool", {}), ("test_panic", {})), text("Half of it.")]
        server.chat("Hi")
        found = server.rows("SELECT * FROM messages WHERE role = 'tool' AND status = 'error'")
        assert sorted(row["tool_name"] for row in found) == ["no_such_tool", "test_panic"], found
        [fine] = server.rows("SELECT * FROM messages WHERE role = 'tool' AND status = 'success'")
        assert fine["tool_name"] == "test_echo" and fine["tool_calls"] is None, fine
        [calling] = server.rows("SELECT * FROM messages WHERE role = 'assistant' AND tool_calls IS NOT NULL")
        assert (calling["tool_call_id"], calling["tool_name"], calling["status"]) == (None, None, None), calling


def check_seeds_memory_and_preferences_reach_the_prompt():
    with Scenario() as (model, _, server):
        model.script = [calls(("remember", {"content": "Sitzt gern am Fenster"}))]
        _, answer, _ = server.chat("Merk dir, dass ich gern am Fenster sitze", user=2)
        [note] = answer["session_state"]["memory"]
        assert (note["type"], note["content"]) == ("note", "Sitzt gern am Fenster") and note["created_at"].endswith("Z"), note
        conversation = answer["conversation_id"]
        server.call("PATCH", f"/api/conversations/{conversation}/state", {"preferences": {"home_airport": "FRA"}}, user=2)
        model.script = [text("Gut.")]
        server.chat("Und?", conversation, user=2)
        system, notes = model.last()["messages"][:2]
        assert system["role"] == "system" and "Sitzt gern am Fenster" not in system["content"], system
        assert notes["role"] == "user" and "Sitzt gern am Fenster" in notes["content"] and '{"home_airport":"FRA"}' in notes["content"], notes


def check_seeds_a_collection_limits_the_search():
    with scenario() as (_, server):
        other = [{"id": "other", "title": "Verfall", "text": "Bonuspunkte verfallen hier nie."}]
        server.call("POST", "/api/knowledge/documents", {"documents": other, "collection": "partner"})
        for collection, wanted in (("partner", {"other"}), ("default", {"expiry"})):
            body = {"input": {"query": "Wann verfallen Bonuspunkte?"}}
            _, out, _ = server.call("POST", "/api/tools/search_knowledge_base/invoke", body, user=3, headers={"x-collection-id": collection})
            assert {source["document_id"] for source in out["data"]["sources"]} == wanted, out


def check_seeds_sources_have_their_fields_and_the_count_is_bounded():
    with scenario() as (_, server):
        def ask(query, **more):
            return server.call("POST", "/api/tools/search_knowledge_base/invoke", {"input": {"query": query, **more}}, user=3)[1]
        found = ask("Bonuspunkte verfallen")["data"]
        source = found["sources"][0]
        assert (found["kind"], found["mode"], found["top_k"]) == ("docs", "rag_docs", 6), found
        assert source["id"] and source["document_id"] == "expiry" and "achtzehn Monate" in source["snippet"] and "similarity" in source, source
        assert found["message"].count("**1.** ") == 1, found["message"]
        assert [ask("Bonuspunkte", top_k=wanted)["data"]["top_k"] for wanted in (-3, 0, 1, 20, 21)] == [1, 1, 1, 20, 20]
        assert ask("   ")["error"]["code"] == "empty_query"
        _, answer, _ = server.chat("Hi", user=3)
        nothing = {"input": {"query": "Wie hoch ist der Eiffelturm?"}, "conversation_id": answer["conversation_id"]}
        server.call("POST", "/api/tools/search_knowledge_base/invoke", nothing, user=3)
        pending = server.call("GET", f"/api/conversations/{answer['conversation_id']}/state", user=3)[1]["pending_gpt_query"]
        assert pending["query"] == "Wie hoch ist der Eiffelturm?" and pending["asked_at"].endswith("Z"), pending


def check_seeds_usage_names_user_and_model():
    with Scenario() as (model, _, server):
        model.script = [text("Hello.")]
        server.chat("Hi", user=3)
        [row] = server.rows("SELECT user_id, model, operation, tokens_prompt, tokens_completion, tokens_total FROM api_usage")
        assert (str(row["user_id"]), row["model"]) == ("3", "fake"), row  # the model name that the provider reported
        assert row["tokens_total"] == row["tokens_prompt"] + row["tokens_completion"] > 0, row


def check_seeds_a_state_patch_is_a_debug_event():
    with Scenario() as (model, _, server):
        model.script = [calls(("get_weather", {"city": "Ulm"})), text("Blue.")]
        received = [data["payload"] for _, name, data in server.stream("Hi", body={"debug": True}) if name == "debug" and data["type"] == "tool_pipeline_state_patch"]
        assert [(one["tool"], one["patch"]) for one in received] == [("get_weather", {"last_city": "Ulm"})], received


def check_seeds_a_flight_has_every_field_of_older_programs():
    with FlightScenario(FLIGHTS_CACHE_S="0") as (_, _, server):
        body = {"origin": "FRA", "destination": "JFK", "departureDate": "2025-03-15", "travelClass": "BUSINESS", "adults": 1, "maxResults": 5}
        status, seats, _ = server.call("POST", "/functions/v1/seatsaero-flight-search", body, user=4)
        assert status == 200, seats
        assert (seats["stats"]["startDate"], seats["stats"]["endDate"], seats["stats"]["cabin"]) == ("2025-03-15", "2025-03-15", "Business"), seats["stats"]
        assert set(seats["stats"]) == {"totalAvailable", "hasMore", "startDate", "endDate", "cabin"}, seats["stats"]
        flight = seats["results"]["flights"][0]
        assert set(flight) == {"id", "provider", "price", "pricePerPerson", "airline", "cabin", "tags", "totalStops", "miles", "taxes", "seatsLeft",
                               "bookingLinks", "outbound"}, flight
        assert set(flight["outbound"]) == {"departure", "arrival", "duration", "stops", "flightNumbers"}, flight
        assert (flight["provider"], flight["cabin"], flight["miles"], flight["totalStops"]) == ("seatsaero", "Business", 85000, 0), flight
        assert flight["outbound"]["arrival"]["airport"] == "JFK" and flight["outbound"]["flightNumbers"] and flight["outbound"]["duration"], flight


def check_seeds_two_notes_saved_at_once_are_both_stored():
    with Scenario() as (model, _, server):
        model.script = [calls(("remember", {"content": "Sits by the window"}), ("remember", {"content": "Eats no meat"})), text("Noted."),
                        calls(("remember", {"content": "Travels alone"})), text("Noted.")]
        _, answer, _ = server.chat("Remember two things")
        _, answer, _ = server.chat("And one more", answer["conversation_id"])
        notes = [note["content"] for note in answer["session_state"]["memory"]]
        assert sorted(notes) == ["Eats no meat", "Sits by the window", "Travels alone"] and notes[2] == "Travels alone", notes
