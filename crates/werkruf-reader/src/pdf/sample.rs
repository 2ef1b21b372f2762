//! PDF files for tests, written by hand: one font, one stream per page, no compression.

/// A file with these pages, each given as drawing operations.
pub(super) fn pdf(pages: &[Vec<u8>]) -> Vec<u8> {
    with_trailer(pages, "", "/Info << /Title (Bonusmeilen) >>")
}

/// Like [`pdf`], with extra entries in the font and in the trailer.
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
    let (mut file, mut offsets) = (b"%PDF-1.4\n".to_vec(), Vec::new());
    for (at, object) in objects.iter().enumerate() {
        offsets.push(file.len());
        file.extend(format!("{} 0 obj\n", at + 1).bytes());
        file.extend(object);
        file.extend(b"\nendobj\n");
    }
    let start = file.len();
    file.extend(format!("xref\n0 {}\n0000000000 65535 f \n", offsets.len() + 1).bytes());
    offsets.iter().for_each(|offset| file.extend(format!("{offset:010} 00000 n \n").bytes()));
    file.extend(format!("trailer\n<< /Size {} /Root 1 0 R {trailer} >>\nstartxref\n{start}\n%%EOF\n", offsets.len() + 1).bytes());
    file
}

/// Draws lines of 12 points, each at its distance from the left and from the bottom, in Windows-1252.
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
                // The other characters are the same in Latin-1.
                letter => content.push(u8::try_from(u32::from(letter)).unwrap()),
            }
        }
        content.extend(b") Tj\n");
    }
    content.extend(b"ET");
    content
}
