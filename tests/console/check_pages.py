"""Tools, knowledge, usage, people, outbox and audit."""
import re

from console import expect, test_id, text


def check_a_tool_is_tried_with_a_form(console):
    page = console.page("tools")
    page.locator("[data-testid='tool-row'][data-tool='test_echo']").click()
    detail = test_id(page, "tool-detail")
    expect(detail).to_contain_text("changes nothing")
    detail.locator("[name='arg-value']").fill('"from the form"')
    test_id(page, "tool-run").click()
    expect(test_id(page, "tool-output")).to_contain_text("from the form")
    expect(test_id(page, "tool-output")).to_contain_text("ok")
    # A tool that needs approval answers that somebody has to decide.
    console.open(page, "tools/create_request")
    page.locator("[name='arg-title']").fill("Made with the form")
    test_id(page, "tool-run").click()
    expect(test_id(page, "tool-output")).to_contain_text("awaiting approval")
    console.clean(page)


def check_a_document_is_uploaded_and_found(console):
    page = console.page("knowledge")
    test_id(page, "knowledge-file").set_input_files(
        [
            {"name": "coffee.md", "mimeType": "text/markdown", "buffer": b"# Coffee machine\n\nDescale the espresso machine every Wednesday with citric acid."},
            {"name": "broken.pdf", "mimeType": "application/pdf", "buffer": b"this is no PDF"},
        ]
    )
    expect(test_id(page, "knowledge-upload").nth(0)).to_have_attribute("data-status", "accepted")
    expect(test_id(page, "knowledge-upload").nth(1)).to_have_attribute("data-status", "failed")
    test_id(page, "knowledge-query").fill("descale espresso")
    test_id(page, "knowledge-query").press("Enter")
    hit = test_id(page, "knowledge-hit").first
    expect(hit).to_contain_text("citric acid")
    expect(hit).to_contain_text(re.compile(r"Words\s*1\."))
    expect(hit).to_contain_text("Meaning")
    console.clean(page)


def check_rights_of_a_collection_are_changed(console):
    console.server.call("POST", "/api/knowledge/documents", {"title": "Office rules", "text": "Close the windows."})
    page = console.page("knowledge")
    page.get_by_label("Roles that may read").fill("lead, admin")
    with page.expect_response(lambda response: response.url.endswith("/rights") and response.request.method == "PUT"):
        page.get_by_role("button", name="Save").click()
    status, rights, _ = console.server.call("GET", "/api/knowledge/collections/default/rights")
    assert (status, sorted(rights["read"])) == (200, ["admin", "lead"]), rights
    console.server.call("PUT", "/api/knowledge/collections/default/rights", {"read": ["*"], "write": []})


def check_usage_is_drawn(console):
    console.model.usage = (1200, 300)
    console.ask("costly", text("Done."))
    console.model.usage = (10, 5)
    page = console.page("usage")
    chart = test_id(page, "usage-chart")
    expect(chart.locator("canvas")).to_be_visible()
    painted = chart.locator("canvas").evaluate(
        "canvas => { const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        " let count = 0; for (let at = 3; at < data.length; at += 4) if (data[at] > 0) count += 1; return count; }"
    )
    assert painted > 500, painted
    expect(page.get_by_text("Per model").locator("xpath=ancestor::section")).to_contain_text("fake")
    expect(page.get_by_text("Per person").locator("xpath=ancestor::section")).to_contain_text("Ana")
    page.get_by_label("Limit").fill("1000000")
    test_id(page, "budget-add").click()
    expect(test_id(page, "budget")).to_contain_text("1,000,000")
    test_id(page, "budget").get_by_role("button", name="Delete").click()
    expect(test_id(page, "budget")).to_have_count(0)
    console.clean(page)


def check_people_and_the_dry_run(console):
    page = console.page("people?user=3")
    expect(test_id(page, "user-row", id="3")).to_contain_text("employee")
    expect(test_id(page, "may-table").locator("tr", has_text="get_requests")).to_contain_text("Yes")
    page.get_by_label("Tool").select_option("get_requests")
    page.get_by_label("Rows of").select_option("1")
    test_id(page, "dry-run").click()
    expect(test_id(page, "dry-run-result")).to_contain_text("Refused")
    lead = page.get_by_label("lead")
    lead.check()
    page.get_by_role("button", name="Save").click()
    expect(test_id(page, "user-row", id="3")).to_contain_text("lead")
    console.server.call("PUT", "/api/people/users/3/roles", {"role_ids": [3]})
    console.clean(page)


def check_outbox_and_audit(console):
    page = console.page("outbox")
    expect(page.get_by_text("No messages")).to_be_visible()
    console.open(page, "audit")
    expect(test_id(page, "audit-row").first).to_be_visible()
    numbers = [int(text) for text in page.locator(".audit-seq").all_inner_texts()]
    assert numbers == sorted(numbers, reverse=True) and len(numbers) > 3, numbers
    test_id(page, "audit-verify").click()
    expect(page.get_by_role("status").filter(has_text="intact")).to_be_visible()
    test_id(page, "audit-row").first.click()
    expect(page.get_by_label("Entry")).to_contain_text("Before")
    console.clean(page)
