"""Calls: filters, live update, the explanation, retry, and the timeline of a turn."""
from console import calls, expect, test_id, text


def check_calls_are_filtered_and_explained(console):
    console.ask("mixed", calls(("test_echo", {"value": "tea"}), ("test_panic", {})), text("One of two."))
    console.ask("number as text", calls(("test_sleep", '{"ms":  "30"}')), text("Repaired."))
    page = console.page("calls")
    newest = console.server.call("GET", "/api/tool-calls?order=desc&limit=20")[1]["tool_calls"]
    shown = test_id(page, "call-row").evaluate_all("rows => rows.map(row => row.dataset.id)")
    assert shown[: len(newest)][:10] == [call["id"] for call in newest][:10], "newest first"
    test_id(page, "calls-filter-status").select_option("failed")
    test_id(page, "calls-filter-tool").select_option("test_panic")
    expect(test_id(page, "call-row").first).to_contain_text("tool_panicked")
    assert set(test_id(page, "call-row").evaluate_all("rows => rows.map(row => row.dataset.tool + row.dataset.status)")) == {"test_panicfailed"}
    page.reload()
    expect(test_id(page, "calls-filter-tool")).to_have_value("test_panic")
    test_id(page, "call-row").first.click()
    expect(test_id(page, "call-outcome")).to_contain_text("tool_panicked")
    expect(test_id(page, "call-arguments-raw")).to_have_text("{}")
    # Arguments that were repaired are shown as the model wrote them and as they were run.
    console.open(page, f"calls/{newest[0]['id']}")
    expect(test_id(page, "call-arguments-raw")).to_have_text('{"ms":  "30"}')
    expect(test_id(page, "call-arguments")).to_contain_text('"ms": 30')
    expect(test_id(page, "call-explain")).to_contain_text("Repairs")
    expect(test_id(page, "call-outcome")).to_contain_text("succeeded")
    console.clean(page)


def check_a_failed_call_is_retried(console):
    answer = console.ask("panic", calls(("test_panic", {})), text("It failed."))
    page = console.page(f"calls/{answer['tool_results'][0]['job_id']}")
    test_id(page, "call-retry").click()
    expect(test_id(page, "call-outcome")).to_contain_text("Repeats the call")
    console.clean(page)


def check_new_calls_appear_by_themselves(console):
    console.echo("already there")
    page = console.page("calls")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    known = test_id(page, "call-row").first.get_attribute("data-id")
    job = console.echo("new")["tool_results"][0]["job_id"]
    assert job != known
    expect(test_id(page, "call-row").first).to_have_attribute("data-id", job)


def check_the_timeline_of_a_turn(console):
    answer = console.ask("two", calls(("test_echo", {"value": "a"}), ("test_sleep", {"ms": 30})), text("Both."))
    page = console.page(f"turns/{answer['turn_id']}")
    expect(page.locator(".waterfall li")).to_have_count(4)
    expect(page.locator(".wf-bar.model")).to_have_count(2)
    page.get_by_role("link", name="test_sleep").click()
    expect(test_id(page, "call-outcome")).to_be_visible()
    console.clean(page)
