"""Sign-in with a link and with a key, sign-out, and what a person without rights sees."""
import re

from console import ADMIN, expect, test_id


def check_a_browser_at_the_root_is_sent_to_the_console(console):
    page = console.context(signed_in=False).new_page()
    page.goto(console.url + "/")
    expect(page).to_have_url(re.compile(r"/console/"))
    expect(test_id(page, "signin-key")).to_be_visible()


def check_a_wrong_key_is_refused_and_a_right_one_signs_in(console):
    page = console.page(signed_in=False)
    test_id(page, "signin-key").fill("wk_this-is-no-key")
    test_id(page, "signin-submit").click()
    expect(page.get_by_role("alert")).to_contain_text("does not know this key")
    test_id(page, "signin-key").fill(ADMIN)
    test_id(page, "signin-submit").click()
    expect(test_id(page, "chat-input")).to_be_visible()
    cookies = page.context.cookies()
    assert len(cookies) == 1 and cookies[0]["httpOnly"] and cookies[0]["sameSite"] == "Strict", cookies
    test_id(page, "signout").click()
    expect(test_id(page, "signin-key")).to_be_visible()
    page.reload()
    expect(test_id(page, "signin-key")).to_be_visible()
    assert console.context(signed_in=False).request.get(console.url + "/api/console/session").status == 401
    console.clean(page)


def check_a_link_signs_in_once(console):
    status, made, _ = console.server.call("POST", "/api/console/links")
    assert status in (200, 201), made
    page = console.context(signed_in=False).new_page()
    page.goto(made["url"])
    expect(test_id(page, "chat-input")).to_be_visible()
    assert "token=" not in page.url, page.url
    other = console.context(signed_in=False).new_page()
    other.goto(made["url"])
    expect(test_id(other, "signin-key")).to_be_visible()
    expect(other.get_by_role("alert")).to_contain_text("used already")


def check_a_person_sees_their_own_and_no_pages_of_operators(console):
    console.echo("of somebody else")
    status, made, _ = console.server.call("POST", "/api/keys", {"user_id": 3, "scopes": ["chat", "read", "tools"]})
    assert status == 201, made
    page = console.page("calls", key=made["key"])
    expect(page.get_by_text("No calls yet")).to_be_visible()
    expect(test_id(page, "nav-usage")).to_be_visible()
    for name in ("people", "outbox", "audit"):
        expect(test_id(page, f"nav-{name}")).to_have_count(0)
    console.clean(page)


def check_an_operator_picks_the_person(console):
    page = console.page("chat")
    expect(test_id(page, "person")).to_have_value("1")
    test_id(page, "person").select_option("2")
    test_id(page, "chat-input").fill("hello from the second person")
    test_id(page, "chat-send").click()
    expect(test_id(page, "message", role="assistant")).to_contain_text("Done.")
    conversation = page.url.rsplit("/", 1)[1]
    status, found, _ = console.server.call("GET", f"/api/conversations/{conversation}")
    assert (status, found["user_id"]) == (200, "2"), found
    page.reload()
    expect(test_id(page, "person")).to_have_value("2")


def check_the_page_speaks_three_languages(console):
    page = console.page("calls")
    for code, title in (("de", "Aufrufe"), ("es", "Llamadas"), ("en", "Calls")):
        test_id(page, "language").select_option(code)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(page.locator("html")).to_have_attribute("lang", code)
    german = console.page("calls", locale="de-DE")
    expect(german.get_by_role("heading", level=1)).to_have_text("Aufrufe")
