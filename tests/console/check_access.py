"""Accessibility: axe finds nothing serious on any view in both themes, and the page works without a mouse."""
from console import VIEWS, axe_source, calls, expect, test_id, text

RULES = "() => axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations.filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => one.id + ': ' + one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160) + ' ' + (node.failureSummary ?? '')).join(' | ')))"


def found_by_axe(page):
    return page.evaluate(RULES)


def check_no_serious_violation_on_any_view(console):
    answer = console.ask("a table", calls(("test_echo", {"value": "x"}), ("test_panic", {})), text("| a | b |\n|---|---|\n| 1 | [link](https://host.example) |\n\n```\ncode\n```"))
    waiting = console.ask("order", calls(("create_request", {"title": "A lamp"})))
    job = answer["tool_results"][0]["job_id"]
    paths = [*VIEWS, f"chat/{answer['conversation_id']}", f"chat/{waiting['conversation_id']}", f"calls/{job}", f"turns/{answer['turn_id']}", "tools/create_request", "people?user=3"]
    problems = []
    for theme in ("light", "dark"):
        context = console.context(color_scheme=theme)
        context.add_init_script(axe_source())
        page = context.new_page()
        page.errors = []
        for path in paths:
            console.open(page, path)
            problems += [f"{theme} {path}: {problem}" for problem in found_by_axe(page)]
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
    assert problems == [], "\n".join(problems)


def check_no_serious_violation_on_sign_in_and_small_pages(console):
    problems = []
    for options in ({"signed_in": False}, {"viewport": {"width": 390, "height": 800}}):
        context = console.context(**options)
        context.add_init_script(axe_source())
        page = context.new_page()
        page.errors = []
        console.open(page, "")
        problems += found_by_axe(page)
        if "viewport" in options:
            page.get_by_role("button", name="Menu").click()
            problems += found_by_axe(page)
            test_id(page, "nav-calls").click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Calls")
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"the page is {wide} pixels too wide"
    assert problems == [], "\n".join(problems)


def check_the_keyboard_is_enough(console):
    console.echo("for the keyboard")
    page = console.page("calls")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    reached = False
    for _ in range(12):
        page.keyboard.press("Tab")
        reached = page.evaluate("document.activeElement.dataset.testid") == "call-row"
        if reached:
            break
    assert reached, "no row of the list can be reached with the keyboard"
    page.keyboard.press("Enter")
    expect(test_id(page, "call-explain")).to_be_visible()
    console.open(page, "chat")
    expect(test_id(page, "chat-input")).to_be_focused()
    page.keyboard.type("from the keyboard")
    page.keyboard.press("Enter")
    expect(test_id(page, "message", role="assistant")).to_contain_text("Done.")
