use proptest::prelude::*;

use super::bounded;
use crate::Kind;
use crate::office_sample::{archive, docx, paragraph, xlsx};

fn any_kind() -> impl Strategy<Value = Kind> {
    proptest::sample::select(Kind::ALL.to_vec())
}

/// A valid file of each kind, as a start.
fn whole(kind: Kind) -> Vec<u8> {
    match kind {
        Kind::Docx => docx(&paragraph("berschrift1", "Eins &amp; zwei"), &[]),
        Kind::Xlsx => xlsx("<row r='1'><c r='A1' t='s'><v>0</v></c><c r='B1' s='1'><v>45717</v></c></row>", "<si><t>Text</t></si>"),
        Kind::Html => b"<title>T</title><table><tr><td>a<td>b</table><ul><li>c</ul><pre>d</pre><nav>e</nav>&shy;f".to_vec(),
        Kind::Csv => b"a;\"b;c\";d\n1;2;3\n".to_vec(),
        Kind::Text => "Grüße".encode_utf16().flat_map(u16::to_le_bytes).collect(),
        // The reader for PDF has property tests of its own.
        Kind::Pdf => b"%PDF-1.4\n%%EOF".to_vec(),
    }
}

fn damaged() -> impl Strategy<Value = (Kind, Vec<u8>)> {
    let faults = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20);
    (any_kind(), faults).prop_map(|(kind, faults)| {
        let mut bytes = whole(kind);
        for (at, byte) in faults {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        (kind, bytes)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(kind in any_kind(), bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        bounded(kind, &bytes);
    }

    #[test]
    fn damaged_files((kind, bytes) in damaged()) {
        bounded(kind, &bytes);
    }

    #[test]
    fn random_markup(kind in any_kind(), text in "(<[/!]?(p|td|tr|table|ul|ol|li|pre|nav|script|title|h1|w:p|w:t|w:tbl|w:tc|c|v|row)( [a-z]=\"[^\"]{0,5}\")?/?>|[a-z<>&;# ]{0,6}){0,60}") {
        bounded(kind, text.as_bytes());
        bounded(Kind::Docx, &docx(&text, &[]));
        bounded(Kind::Xlsx, &xlsx(&text, &text));
        bounded(Kind::Docx, &archive(&[("word/document.xml", &text)]));
    }
}
