"""Chat: streaming, tools while they run, reload in the middle of an answer, approval, pictures."""
import re

from console import calls, expect, held, test_id, text

PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
STORY = "The first half of a long answer stands here. And here follows the second half of it."


def send(page, message):
    test_id(page, "chat-input").fill(message)
    test_id(page, "chat-send").click()


def answer_of(page):
    return test_id(page, "message", role="assistant").last


def check_a_tool_appears_while_it_runs(console):
    page = console.page("chat")
    console.model.script = [calls(("test_sleep", {"ms": 1500})), text("**Slept** well.")]
    send(page, "sleep a little")
    expect(test_id(page, "message", role="user")).to_have_text("sleep a little")
    expect(test_id(page, "tool-chip", tool="test_sleep", status="running")).to_be_visible()
    chip = test_id(page, "tool-chip", tool="test_sleep", status="succeeded")
    expect(chip).to_contain_text(re.compile(r"\d(\.\d+)? s"))
    expect(answer_of(page).locator("strong")).to_have_text("Slept")
    job = chip.get_attribute("data-job")
    status, call, _ = console.server.call("GET", f"/api/tool-calls/{job}")
    assert (status, call["tool_name"], call["status"]) == (200, "test_sleep", "succeeded"), call
    # The other side shows the call, and then its explanation.
    expect(page.get_by_role("complementary").get_by_role("link", name="test_sleep")).to_be_visible()
    chip.click()
    expect(test_id(page, "call-explain")).to_contain_text("test_sleep")
    console.clean(page)


def check_a_reload_in_the_middle_of_an_answer_loses_nothing(console):
    page = console.page("chat")
    slow, gate = held(STORY, pieces=12, at=6)
    console.model.script = [calls(("test_echo", {"value": "tea"})), slow]
    send(page, "tell me a story")
    expect(answer_of(page)).to_contain_text("The first half")
    expect(answer_of(page)).to_have_attribute("aria-busy", "true")
    page.reload()
    expect(answer_of(page)).to_contain_text("The first half")
    expect(answer_of(page)).not_to_contain_text("second half")
    expect(test_id(page, "tool-chip", tool="test_echo", status="succeeded")).to_have_count(1)
    gate.set()
    expect(answer_of(page).locator(".markdown").last).to_have_text(STORY)
    expect(answer_of(page)).to_have_attribute("aria-busy", "false")
    expect(test_id(page, "message", role="user")).to_have_text(["tell me a story"])
    page.reload()
    expect(answer_of(page).locator(".markdown").last).to_have_text(STORY)
    expect(test_id(page, "message")).to_have_count(2)
    console.clean(page)


def check_an_approval_is_given_in_the_chat(console):
    page = console.page("chat")
    console.model.script = [calls(("create_request", {"title": "A new chair"})), text("The request exists.")]
    send(page, "please order a chair")
    expect(test_id(page, "tool-chip", status="awaiting_approval")).to_be_visible()
    page.reload()
    test_id(page, "approve").click()
    expect(test_id(page, "tool-chip", tool="create_request", status="succeeded")).to_be_visible()
    expect(answer_of(page)).to_contain_text("The request exists.")
    expect(test_id(page, "approve")).to_have_count(0)
    console.clean(page)


def check_an_approval_is_denied_on_its_page(console):
    waiting = console.ask("order another chair", calls(("create_request", {"title": "One chair too many"})), text("Then not."))
    page = console.page("approvals")
    card = page.locator("article", has_text="One chair too many")
    card.locator("[data-testid='deny']").click()
    expect(card).to_have_count(0)
    console.open(page, f"chat/{waiting['conversation_id']}")
    expect(answer_of(page)).to_contain_text("Then not.")
    console.clean(page)


def check_a_turn_is_canceled(console):
    page = console.page("chat")
    slow, gate = held(STORY, pieces=12, at=6)
    console.model.script = [slow]
    send(page, "start something long")
    expect(answer_of(page)).to_contain_text("The first half")
    test_id(page, "chat-cancel").click()
    expect(answer_of(page)).to_have_attribute("data-status", "canceled")
    gate.set()
    expect(test_id(page, "chat-send")).to_be_enabled()


def check_a_failed_turn_says_why(console):
    page = console.page("chat")
    console.model.script = [("status", 400)]
    send(page, "this fails")
    expect(answer_of(page).get_by_role("alert")).to_be_visible()
    expect(answer_of(page)).to_have_attribute("data-status", "failed")
    console.clean(page)


def check_pictures_of_answers_and_results_are_shown(console):
    page = console.page("chat")
    console.model.script = [calls(("test_echo", {"value": PICTURE})), text(f"Look: ![a dot]({PICTURE}) and ![far](https://pictures.example/x.png)")]
    send(page, "draw something")
    expect(answer_of(page).locator("img.picture")).to_have_count(2)
    expect(answer_of(page)).to_contain_text("not loaded")
    console.clean(page)


def check_a_conversation_that_goes_on_elsewhere_is_live(console):
    first = console.ask("begin", text("Begun."))
    page = console.page(f"chat/{first['conversation_id']}")
    expect(answer_of(page)).to_contain_text("Begun.")
    console.ask("go on", text("Gone on."), conversation=first["conversation_id"])
    expect(answer_of(page)).to_contain_text("Gone on.")
    expect(test_id(page, "message", role="user").last).to_have_text("go on")
