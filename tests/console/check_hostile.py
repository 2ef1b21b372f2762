"""Hostile text of models, tools, documents and people: no script runs, and no request leaves."""
from console import calls, expect, test_id, text
from payloads import PAYLOADS

PER_TURN = 128
FORBIDDEN = "script, iframe, object, embed, form, style, link, meta, base, svg, math, video, audio, input, textarea, [style], [onload], [onerror], [onclick], [onmouseover], [onfocus], [srcdoc]"
# Everything in sight of hostile text: no element that the page does not make itself, links and pictures only of the allowed kinds.
INSPECT = """(forbidden) => {
  const found = [];
  for (const area of document.querySelectorAll('.message, [data-testid="call-explain"], [data-testid="knowledge-hit"], [data-testid="tool-output"]')) {
    for (const element of area.querySelectorAll(forbidden)) {
      if (element.closest('.chip, .button, .icon')) continue;
      found.push(element.outerHTML.slice(0, 200));
    }
    for (const element of area.querySelectorAll('*')) {
      for (const attribute of element.attributes) if (attribute.name.startsWith('on')) found.push(element.outerHTML.slice(0, 200));
    }
    for (const link of area.querySelectorAll('a[href]')) {
      const inside = link.origin === location.origin;
      if (!inside && !['http:', 'https:', 'mailto:'].includes(link.protocol)) found.push(link.outerHTML.slice(0, 200));
      if (!inside && !(link.querySelector('.host')?.textContent)) found.push('no host: ' + link.outerHTML.slice(0, 200));
      if (inside && link.closest('.markdown')) found.push('a link of the text to this host: ' + link.outerHTML.slice(0, 200));
    }
    for (const picture of area.querySelectorAll('img')) if (!/^data:image\\/(png|jpeg|gif|webp);base64,/.test(picture.getAttribute('src'))) found.push(picture.outerHTML.slice(0, 200));
  }
  return found;
}"""


def inspect(console, page):
    # A moment in which a script that was smuggled in would run: two frames and a task.
    page.evaluate("() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve, 50))))")
    assert page.evaluate("window.__owned") is None, page.evaluate("window.__owned")
    assert page.evaluate(INSPECT, FORBIDDEN) == []
    console.clean(page)


def watched(console, path):
    page = console.page()
    page.dialogs = []
    page.on("dialog", lambda dialog: (page.dialogs.append(dialog.message), dialog.dismiss()))
    page.context.on("page", lambda opened: page.dialogs.append(f"opened {opened.url}"))
    console.open(page, path)
    return page


def check_hostile_answers_of_a_model(console):
    assert len(PAYLOADS) >= 100, len(PAYLOADS)
    conversation = None
    for payload in PAYLOADS:
        conversation = console.ask(f"say: {payload}"[:4000], text(payload, pieces=1), conversation=conversation)["conversation_id"]
    page = watched(console, f"chat/{conversation}")
    expect(test_id(page, "message", role="assistant")).to_have_count(len(PAYLOADS))
    inspect(console, page)
    assert page.dialogs == [], page.dialogs
    # Each message is there: nothing was dropped in order to be safe.
    shown = test_id(page, "message", role="user").all_inner_texts()
    assert [entry.strip() for entry in shown] == [f"say: {payload}".strip() for payload in PAYLOADS]


def check_hostile_results_of_tools(console):
    wanted = [("test_echo", {"value": {"message": payload, "mimeType": "image/svg+xml", "data": payload}}) for payload in PAYLOADS[:PER_TURN]]
    answer = console.ask("run them", calls(*wanted), text("All run."))
    jobs = [result["job_id"] for result in answer["tool_results"]]
    assert len(jobs) == len(wanted), len(jobs)
    page = watched(console, f"chat/{answer['conversation_id']}")
    expect(test_id(page, "tool-chip")).to_have_count(len(jobs))
    inspect(console, page)
    console.open(page, "calls")
    for job in jobs[::24]:
        console.open(page, f"calls/{job}")
        expect(test_id(page, "call-outcome")).to_be_visible()
        inspect(console, page)
    assert page.dialogs == [], page.dialogs


def check_hostile_documents(console):
    documents = [{"id": f"hostile-{at}", "title": payload[:200], "text": f"zanzibar {payload}"} for at, payload in enumerate(PAYLOADS)]
    status, added, _ = console.server.call("POST", "/api/knowledge/documents", {"collection": "hostile", "documents": documents})
    assert status == 200, added
    page = watched(console, "knowledge")
    test_id(page, "knowledge-collection").fill("hostile")
    test_id(page, "knowledge-collection").press("Tab")
    test_id(page, "knowledge-query").fill("zanzibar")
    test_id(page, "knowledge-query").press("Enter")
    expect(test_id(page, "knowledge-hit").first).to_be_visible()
    inspect(console, page)
    assert page.dialogs == [], page.dialogs


def check_links_say_where_they_lead(console):
    conversation = console.ask("links", text("[your bank](https://bank.example@evil.example/x) <mail@office.example> [run](javascript:alert(1)) [inside](/api/keys) [file](file:///etc/passwd)"))["conversation_id"]
    page = watched(console, f"chat/{conversation}")
    links = test_id(page, "message", role="assistant").locator(".markdown a")
    expect(links).to_have_count(2)
    assert links.evaluate_all("links => links.map(link => [link.href, link.querySelector('.host').textContent])") == [
        ["https://evil.example/x", "evil.example"],
        ["mailto:mail@office.example", "mail@office.example"],
    ]
    assert links.first.get_attribute("rel") == "noopener noreferrer nofollow"
    inspect(console, page)
