//! PDF files for tests, written by hand: one font, one stream per page, no compression.

/// A file with these pages, each the drawing instructions of its text.
pub(super) fn pdf(pages: &[Vec<u8>]) -> Vec<u8> {
    with_trailer(pages, "", "/Info << /Title (Bonusmeilen) >>")
}

/// The same, and an object more and what the trailer says of it.
pub(super) fn with_trailer(pages: &[Vec<u8>], font_extra: &str, trailer: &str) -> Vec<u8> {
    let kids: Vec<String> = (0..pages.len()).map(|at| format!("{} 0 R", 4 + 2 * at)).collect();
    let mut objects: Vec<Vec<u8>> = vec![
        b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
        format!("<< /Type /Pages /Count {} /Kids [{}] >>", pages.len(), kids.join(" ")).into_bytes(),
        format!("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding {font_extra} >>").into_bytes(),
    ];
    for (at, page) in pages.iter().enumerate() {
        let stream = 5 + 2 * at;
        objects.push(
            format!("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F 3 0 R >> >> /Contents {stream} 0 R >>")
                .into_bytes(),
        );
        let mut content = format!("<< /Length {} >>\nstream\n", page.len()).into_bytes();
        content.extend(page);
        content.extend(b"\nendstream");
        objects.push(content);
    }
    let (mut file, mut places) = (b"%PDF-1.4\n".to_vec(), Vec::new());
    for (at, object) in objects.iter().enumerate() {
        places.push(file.len());
        file.extend(format!("{} 0 obj\n", at + 1).bytes());
        file.extend(object);
        file.extend(b"\nendobj\n");
    }
    let start = file.len();
    file.extend(format!("xref\n0 {}\n0000000000 65535 f \n", places.len() + 1).bytes());
    places.iter().for_each(|place| file.extend(format!("{place:010} 00000 n \n").bytes()));
    file.extend(format!("trailer\n<< /Size {} /Root 1 0 R {trailer} >>\nstartxref\n{start}\n%%EOF\n", places.len() + 1).bytes());
    file
}

/// Draws lines of 12 points, each at its place from the left and from the bottom. Letters as Windows writes them.
pub(super) fn drawn(lines: &[(i32, i32, &str)]) -> Vec<u8> {
    let mut content = b"BT /F 12 Tf\n".to_vec();
    for (left, bottom, text) in lines {
        content.extend(format!("1 0 0 1 {left} {bottom} Tm (").bytes());
        for letter in text.chars() {
            match letter {
                '(' | ')' | '\\' => content.extend([b'\\', letter as u8]),
                '€' => content.push(0x80),
                '–' => content.push(0x96),
                '•' => content.push(0x95),
                // Latin-1 is the rest of it.
                letter => content.push(u8::try_from(u32::from(letter)).unwrap()),
            }
        }
        content.extend(b") Tj\n");
    }
    content.extend(b"ET");
    content
}
