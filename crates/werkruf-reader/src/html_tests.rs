use super::read;

fn text(page: &str) -> String {
    read(page).unwrap().1
}

#[test]
fn a_page_becomes_markdown() {
    let page = "<!doctype html><html><head><title>Meilen &amp;\n mehr</title><style>p{color:red}</style><script>var y = 1;</script></head>\
        <body class=x data-a='1 > 0'><nav><ul><li><a href='/'>Start</a></li></ul><nav>inner</nav>rest</nav><script>var x = '<p>no</p>';</script>\
        <h1>Verfall</h1><p>Meilen verfallen\n nach <b>36</b> Monaten.</p><!-- <p>hidden</p> --><ul><li>Gold</li><li>Silber\
        <ol start=3><li>innen</li><li>auch</li></ol></li></ul><p>Siehe <a href='https://x.example/a_b?c=d'>die Regeln</a>.\
        <img alt='x > y' src='a.png' title='t > u'></p><table><tr><th>Stufe</th><th>Punkte</th></tr><tr><td>Gold<td>35.000</table>\
        <svg><title>Bild</title><text>svg</text></svg><noscript>no script</noscript><template><p>tpl</p></template>\
        Gr&uuml;&szlig;e &unknown; &#8364;</body></html>";
    let (title, text) = read(page).unwrap();
    assert_eq!(title.as_deref(), Some("Meilen & mehr"));
    let expected = "# Verfall\n\nMeilen verfallen nach 36 Monaten.\n\n- Gold\n- Silber\n  3. innen\n  4. auch\n\nSiehe die Regeln.\n\n\
        | Stufe | Punkte |\n| Gold | 35.000 |\n\nGrüße &unknown; €";
    assert_eq!(text, expected);
}

#[test]
fn what_the_earlier_reader_lost_or_leaked() {
    assert_eq!(text("<p>a < b and c > d, 1 &lt; 2, x<5 and y>3</p>"), "a < b and c > d, 1 < 2, x<5 and y>3");
    assert_eq!(text("<p>Zu&shy;cker &copy; 2025 &nbsp; &hearts; &NotEqualTilde; a&nbsp;b</p>"), "Zucker © 2025 ♥ ≂̸ a b");
    assert_eq!(text("<div title=\"a > b\" onclick='if (x > 1) alert(\"<p>\")'>Text</div>"), "Text");
    assert_eq!(text("<p>1. Mai * 2 _x_ [a] #1 a_b_c</p>"), "1. Mai * 2 _x_ [a] #1 a_b_c");
}

#[test]
fn layout_tables_keep_their_paragraphs() {
    let page = "<table><tr><td><h1>Brief</h1><p>Erster.</p><table><tr><td>A</td><td>B</td></tr></table><p>Zweiter.</p></td></tr></table>";
    assert_eq!(text(page), "# Brief\n\nErster.\n\n| A | B |\n\nZweiter.");
    assert_eq!(text("<table><tr><td><h2>K</h2><p>a</p><p>b</p></td><td>c<br>d</td></tr></table>"), "| K a b | c d |");
}

#[test]
fn deep_lists_and_numbered_cells_keep_their_marks() {
    let (open, close) = ("<ul><li>x".repeat(12), "</li></ul>".repeat(12));
    let page = format!("<ol><li>eins{open}{close}</li><li>zwei</li></ol><table><tr><td>#4711</td><td><h3>Titel</h3></td></tr></table>");
    let text = text(&page);
    assert!(text.starts_with("1. eins") && text.contains("\n2. zwei"), "{text}");
    assert!(text.ends_with("| #4711 | Titel |"), "{text}");
}

#[test]
fn code_keeps_its_lines() {
    assert_eq!(
        text("<p>So:</p><pre><code>if a &lt; b {\n   x *y*\n}</code></pre><p>Ende</p>"),
        "So:\n\n```\nif a < b {\n   x *y*\n}\n```\n\nEnde"
    );
}

#[test]
fn malformed_pages_lose_nothing() {
    for (page, expected) in [
        ("<", "<"),
        ("a < b", "a < b"),
        ("x <p", "x"),
        ("</", "</"),
        ("&", "&"),
        ("one<script>never closed", "one"),
        ("<title>only a title", ""),
        ("<!-- x", ""),
        ("<nav><a>menu</a><main>body</main>", "body"),
        ("<script src=x />text", "text"),
        ("<p>one<p>two<div>three", "one\n\ntwo\n\nthree"),
        ("<td>cell</td> outside", "cell outside"),
        ("<ul><li>a<li>b</ul></ul></ul><li>c", "- a\n- b\n\n- c"),
        ("<b><i>x</b>y</i>z", "xyz"),
    ] {
        assert_eq!(text(page), expected, "{page}");
    }
    let deep = "<div>".repeat(200_000) + "deep";
    assert_eq!(text(&deep), "deep");
    assert_eq!(text(&("<ul><li>".repeat(50_000) + "deep")).split_whitespace().last(), Some("deep"));
}
