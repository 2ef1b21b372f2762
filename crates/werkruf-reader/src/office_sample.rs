//! Office files for tests, written by hand.

use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// An archive with these parts.
pub(crate) fn archive(parts: &[(&str, &str)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in parts {
        zip.start_file(*name, SimpleFileOptions::default().compression_method(CompressionMethod::Deflated)).unwrap();
        zip.write_all(content.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

const CORE: &str = "<cp:coreProperties xmlns:cp='c' xmlns:dc='d'><dc:title>Regeln &amp; mehr</dc:title></cp:coreProperties>";
const STYLES: &str = "<w:styles xmlns:w='w'><w:style w:type='paragraph' w:styleId='berschrift1'><w:name w:val='heading 1'/></w:style>\
    <w:style w:styleId='Eigene'><w:name w:val='Eigene'/><w:pPr><w:outlineLvl w:val='1'/></w:pPr></w:style>\
    <w:style w:styleId='Aufzhlung'><w:name w:val='List Bullet'/><w:pPr><w:numPr/></w:pPr></w:style></w:styles>";

/// A DOCX file with this body and these additional parts.
pub(crate) fn docx(body: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let document = format!("<?xml version='1.0'?><w:document xmlns:w='w' xmlns:mc='m'><w:body>{body}</w:body></w:document>");
    let mut parts = vec![("word/document.xml", document.as_str()), ("word/styles.xml", STYLES), ("docProps/core.xml", CORE)];
    parts.extend(more);
    archive(&parts)
}

/// A paragraph in a style, and its text as XML.
pub(crate) fn paragraph(style: &str, text: &str) -> String {
    let style = if style.is_empty() { String::new() } else { format!("<w:pPr><w:pStyle w:val='{style}'/></w:pPr>") };
    format!("<w:p>{style}<w:r><w:t xml:space='preserve'>{text}</w:t></w:r></w:p>")
}

const WORKBOOK: &str = "<workbook xmlns='s' xmlns:r='http://schemas.openxmlformats.org/officeDocument/2006/relationships'><sheets>\
    <sheet name='Preise 2025' sheetId='1' r:id='rId1'/><sheet name='Leer' sheetId='2' r:id='rId2'/></sheets></workbook>";
const RELATIONS: &str = "<Relationships xmlns='http://schemas.openxmlformats.org/package/2006/relationships'>\
    <Relationship Id='rId1' Type='http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet' Target='worksheets/sheet1.xml'/>\
    <Relationship Id='rId2' Type='http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet' Target='worksheets/sheet2.xml'/>\
    </Relationships>";
const PACKAGE: &str = "<Relationships xmlns='http://schemas.openxmlformats.org/package/2006/relationships'><Relationship Id='rId1' \
    Type='http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument' Target='xl/workbook.xml'/></Relationships>";
/// Formats 0 to 5: general, a date, a time, a duration, a date and time, a percentage.
const CELL_STYLES: &str = "<styleSheet><numFmts><numFmt numFmtId='164' formatCode='dd.mm.yyyy'/><numFmt numFmtId='165' formatCode='[h]:mm:ss'/>\
    </numFmts><cellXfs><xf numFmtId='0'/><xf numFmtId='164'/><xf numFmtId='20'/><xf numFmtId='165'/><xf numFmtId='22'/><xf numFmtId='9'/></cellXfs></styleSheet>";

/// An XLSX file: a sheet with these rows, given as XML, and an empty sheet.
pub(crate) fn xlsx(rows: &str, shared: &str) -> Vec<u8> {
    let sheet = |rows: &str| format!("<worksheet xmlns='s'><sheetData>{rows}</sheetData></worksheet>");
    let strings = format!("<sst xmlns='s'>{shared}</sst>");
    archive(&[
        ("_rels/.rels", PACKAGE),
        ("xl/workbook.xml", WORKBOOK),
        ("xl/_rels/workbook.xml.rels", RELATIONS),
        ("xl/styles.xml", CELL_STYLES),
        ("xl/sharedStrings.xml", &strings),
        ("xl/worksheets/sheet1.xml", &sheet(rows)),
        ("xl/worksheets/sheet2.xml", &sheet("")),
        ("docProps/core.xml", CORE),
    ])
}
