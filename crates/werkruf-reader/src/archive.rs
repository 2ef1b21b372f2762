//! Opens the ZIP archives that Office files are. What they expand to is bounded before anything else reads them.

use std::io::{BufReader, Cursor, Read, copy, sink};

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, Event};
use zip::ZipArchive;

use crate::ReadError;

/// The XML of one file, expanded.
pub(crate) const MAX_EXPANDED_BYTES: u64 = 192 * 1024 * 1024;
const MAX_PARTS: usize = 10_000;
/// How deep elements may be nested.
pub(crate) const MAX_DEPTH: usize = 1_000;
/// The start of an encrypted Office file, and of one in the old binary format.
const COMPOUND_FILE: &[u8] = b"\xD0\xCF\x11\xE0";

/// An Office file.
pub(crate) struct Archive<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
    kind: &'static str,
}

impl<'a> Archive<'a> {
    /// Opens the file, and expands its XML once without storing it: sizes in the file's directory may be wrong.
    pub(crate) fn open(bytes: &'a [u8], kind: &'static str) -> Result<Self, ReadError> {
        if bytes.starts_with(COMPOUND_FILE) {
            return Err(ReadError::EncryptedOffice(kind));
        }
        let broken = |_| ReadError::BrokenOffice(kind);
        let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(broken)?;
        if zip.len() > MAX_PARTS {
            return Err(ReadError::Expands);
        }
        let mut expanded = 0;
        for at in 0..zip.len() {
            let Ok(part) = zip.by_index(at) else { return Err(ReadError::BrokenOffice(kind)) };
            let is_xml = [&b".xml"[..], b".rels"].into_iter().any(|ending| part.name_raw().to_ascii_lowercase().ends_with(ending));
            if is_xml {
                let rest = MAX_EXPANDED_BYTES - expanded;
                expanded += copy(&mut part.take(rest + 1), &mut sink()).map_err(|_| ReadError::BrokenOffice(kind))?;
                if expanded > MAX_EXPANDED_BYTES {
                    return Err(ReadError::Expands);
                }
            }
        }
        Ok(Self { zip, kind })
    }

    /// The events of an XML part; `None` if there is no such part.
    pub(crate) fn xml(&mut self, name: &str) -> Option<Reader<impl std::io::BufRead>> {
        let part = self.zip.by_name(name).ok()?;
        let mut reader = Reader::from_reader(BufReader::new(part.take(MAX_EXPANDED_BYTES)));
        reader.config_mut().check_end_names = false;
        Some(reader)
    }

    /// The title in the properties of the document.
    pub(crate) fn title(&mut self) -> Option<String> {
        let mut xml = self.xml("docProps/core.xml")?;
        let (mut buffer, mut title, mut is_title) = (Vec::new(), String::new(), false);
        loop {
            match xml.read_event_into(&mut buffer).ok()? {
                Event::Start(tag) => is_title = tag.local_name().as_ref() == "title",
                Event::End(_) if is_title => break,
                Event::Text(text) if is_title => title.push_str(&text.xml10_content()),
                Event::GeneralRef(name) if is_title => title.extend(character(&name)),
                Event::Eof => break,
                _ => {}
            }
            buffer.clear();
        }
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        (!title.is_empty()).then_some(title)
    }

    /// The error for a part that cannot be read.
    pub(crate) const fn broken(&self) -> ReadError {
        ReadError::BrokenOffice(self.kind)
    }
}

/// The character of a reference such as `&amp;` or `&#8364;`.
pub(crate) fn character(name: &BytesRef<'_>) -> Option<char> {
    match name.resolve_char_ref() {
        Ok(Some(letter)) => Some(letter),
        _ => resolve_xml_entity(name.as_ref()).and_then(|text| text.chars().next()),
    }
}
