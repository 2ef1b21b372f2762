//! What the paragraph styles of a DOCX file mean: headings and lists. Their ids depend on the language of the program that wrote the file.

use std::collections::HashMap;

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

use crate::archive::Archive;

/// What a paragraph is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Role {
    #[default]
    Paragraph,
    /// A heading of this level, 1 to 6.
    Heading(usize),
    /// A list item at this depth, from 0.
    Item(usize),
}

/// The roles of paragraph styles by their ids.
#[derive(Debug, Default)]
pub(crate) struct Styles(HashMap<String, Role>);

impl Styles {
    /// The role of a style; a style that the file does not describe is recognised by its English id.
    pub(crate) fn role(&self, id: &str) -> Role {
        self.0.get(id).copied().unwrap_or_else(|| named(&id.to_lowercase()))
    }

    /// Reads `word/styles.xml`. A damaged part ends the list.
    pub(crate) fn read(archive: &mut Archive<'_>) -> Self {
        let Some(mut xml) = archive.xml("word/styles.xml") else { return Self::default() };
        let (mut styles, mut buffer, mut current) = (Self::default(), Vec::new(), None);
        while let Ok(event) = xml.read_event_into(&mut buffer) {
            match event {
                Event::Start(tag) | Event::Empty(tag) => match (tag.local_name().as_ref(), &mut current) {
                    ("style", _) => current = attribute(&tag, "styleId").map(|id| (id, Role::default())),
                    ("name", Some((_, role))) => *role = merged(*role, named(&attribute(&tag, "val").unwrap_or_default().to_lowercase())),
                    ("outlineLvl", Some((_, role))) => *role = merged(*role, outline(&tag)),
                    ("numPr", Some((_, role))) => *role = merged(*role, Role::Item(0)),
                    _ => {}
                },
                Event::End(tag) if tag.local_name().as_ref() == "style" => styles.0.extend(current.take()),
                Event::Eof => break,
                _ => {}
            }
            buffer.clear();
        }
        styles
    }
}

/// A heading stays a heading, also with a number.
pub(crate) const fn merged(before: Role, next: Role) -> Role {
    match (before, next) {
        (Role::Heading(_), _) | (_, Role::Paragraph) => before,
        _ => next,
    }
}

/// `w:outlineLvl`: 0 to 8; 9 means body text.
pub(crate) fn outline(tag: &BytesStart<'_>) -> Role {
    match attribute(tag, "val").and_then(|level| level.parse::<usize>().ok()) {
        Some(level) if level < 9 => Role::Heading((level + 1).min(6)),
        _ => Role::Paragraph,
    }
}

/// The role that a style's name says. Names are in English in every language's files.
fn named(name: &str) -> Role {
    if name == "title" {
        return Role::Heading(1);
    }
    let level = name.strip_prefix("heading").and_then(|level| level.trim().parse::<usize>().ok());
    match level {
        Some(level) if (1..=9).contains(&level) => Role::Heading(level.min(6)),
        _ if name.starts_with("list bullet") || name.starts_with("list number") => Role::Item(0),
        _ => Role::Paragraph,
    }
}

/// The value of an attribute by its local name.
pub(crate) fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let found = tag.attributes().flatten().find(|attribute| attribute.key.local_name().as_ref() == name)?;
    found.normalized_value(XmlVersion::Implicit1_0).ok().map(std::borrow::Cow::into_owned)
}
