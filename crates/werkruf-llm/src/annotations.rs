//! Annotations of an answer, as providers send them. Anything else than what both APIs document is dropped.

use serde_json::Value;
use werkruf_contract::Annotation;

/// More annotations of one answer are dropped.
const MAX_COUNT: usize = 256;
/// The same in bytes of their texts.
const MAX_BYTES: usize = 128 * 1024;
const MAX_URL_BYTES: usize = 8 * 1024;
const MAX_NAME_CHARS: usize = 512;

/// The annotations of a text. Both their number and their bytes are bounded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Annotations {
    list: Vec<Annotation>,
    bytes: usize,
}

impl Annotations {
    /// Adds an annotation as received. Some servers send the same one with every chunk.
    pub(crate) fn add(&mut self, received: &Value) {
        if let Some(annotation) = read(received) {
            self.push(annotation);
        }
    }

    fn push(&mut self, annotation: Annotation) {
        let bytes = self.bytes + bytes_of(&annotation);
        if self.list.len() < MAX_COUNT && bytes <= MAX_BYTES && !self.list.contains(&annotation) {
            self.bytes = bytes;
            self.list.push(annotation);
        }
    }

    /// Adds the annotations of a further text, which follows this many characters.
    pub(crate) fn append(&mut self, later: &Self, before: u64) {
        for annotation in &later.list {
            self.push(annotation.clone().shifted(before));
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The annotations, with positions inside the text.
    pub(crate) fn within(self, text: &str) -> Vec<Annotation> {
        if self.list.is_empty() {
            return self.list;
        }
        let length = characters(text);
        let mut list = self.list;
        for annotation in &mut list {
            match annotation {
                Annotation::UrlCitation { start_index, end_index, .. }
                | Annotation::ContainerFileCitation { start_index, end_index, .. } => {
                    *end_index = (*end_index).min(length);
                    *start_index = (*start_index).min(*end_index);
                }
                Annotation::FileCitation { .. } | Annotation::FilePath { .. } => {}
            }
        }
        list
    }
}

/// How many characters a text has.
pub(crate) fn characters(text: &str) -> u64 {
    text.chars().count() as u64
}

/// Chat Completions nests the fields of a citation, the Responses API does not.
fn read(received: &Value) -> Option<Annotation> {
    let kind = received["type"].as_str()?;
    let fields = received.get(kind).filter(|fields| fields.is_object()).unwrap_or(received);
    let name = |field: &str| fields[field].as_str().unwrap_or_default().chars().take(MAX_NAME_CHARS).collect::<String>();
    let id = |field: &str| fields[field].as_str().filter(|id| !id.is_empty() && id.len() <= MAX_NAME_CHARS).map(str::to_owned);
    let at = |field: &str| fields[field].as_u64().unwrap_or(0);
    let (start_index, end_index) = (at("start_index"), at("end_index"));
    Some(match kind {
        "url_citation" => Annotation::UrlCitation { url: web_address(&fields["url"])?, title: name("title"), start_index, end_index },
        "file_citation" => Annotation::FileCitation { file_id: id("file_id")?, filename: name("filename"), index: at("index") },
        "container_file_citation" => Annotation::ContainerFileCitation {
            container_id: id("container_id")?,
            file_id: id("file_id")?,
            filename: name("filename"),
            start_index,
            end_index,
        },
        "file_path" => Annotation::FilePath { file_id: id("file_id")?, index: at("index") },
        _ => return None,
    })
}

/// A client may make a link of the address, so it must be one of the web.
fn web_address(url: &Value) -> Option<String> {
    let url = url.as_str().filter(|url| url.len() <= MAX_URL_BYTES && !url.chars().any(|c| c.is_control() || c == ' '))?;
    let (scheme, rest) = url.split_once("://")?;
    let of_web = scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http");
    (of_web && !rest.is_empty()).then(|| url.to_owned())
}

const fn bytes_of(annotation: &Annotation) -> usize {
    match annotation {
        Annotation::UrlCitation { url, title, .. } => url.len() + title.len(),
        Annotation::FileCitation { file_id, filename, .. } => file_id.len() + filename.len(),
        Annotation::ContainerFileCitation { container_id, file_id, filename, .. } => container_id.len() + file_id.len() + filename.len(),
        Annotation::FilePath { file_id, .. } => file_id.len(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Annotations, MAX_COUNT};

    fn kept(received: &[Value], text: &str) -> Value {
        let mut annotations = Annotations::default();
        received.iter().for_each(|value| annotations.add(value));
        json!(annotations.within(text))
    }

    #[test]
    fn both_forms_are_read_and_addresses_are_of_the_web() {
        let flat = json!({"type": "url_citation", "url": "https://e.org/a", "title": "A", "start_index": 1, "end_index": 3});
        let nested =
            json!({"type": "url_citation", "url_citation": {"url": "HTTP://e.org/b", "title": null, "start_index": 9, "end_index": 99}});
        let clamped = json!({"type": "url_citation", "url": "HTTP://e.org/b", "title": "", "start_index": 4, "end_index": 4});
        assert_eq!(kept(&[flat.clone(), nested, flat.clone()], "äöüß"), json!([flat, clamped]), "once each, inside the text");
        let files = [
            json!({"type": "file_citation", "file_id": "f", "filename": "a.pdf", "index": 7}),
            json!({"type": "container_file_citation", "container_id": "c", "file_id": "f", "filename": "a", "start_index": 0, "end_index": 1}),
            json!({"type": "file_path", "file_id": "f", "index": 2}),
        ];
        assert_eq!(kept(&files, "text"), json!(files));
        let bad = ["javascript:alert(1)", "data:text/html,x", "https:", "https://", "//e.org", "https://e.org/a b", "https://e.org/\n", ""];
        for url in bad {
            assert_eq!(kept(&[json!({"type": "url_citation", "url": url})], "text"), json!([]), "{url}");
        }
        for odd in [json!(null), json!("x"), json!({"type": "url_citation"}), json!({"type": "new_kind"}), json!({"type": "file_path"})] {
            assert_eq!(kept(&[odd], "text"), json!([]));
        }
    }

    #[test]
    fn their_number_and_their_bytes_are_bounded() {
        let citation = |at: usize, title: String| json!({"type": "url_citation", "url": format!("https://e.org/{at}"), "title": title});
        let many: Vec<Value> = (0..1000).map(|at| citation(at, String::new())).collect();
        assert_eq!(kept(&many, "x").as_array().unwrap().len(), MAX_COUNT);
        let long: Vec<Value> = (0..200).map(|at| citation(at, "ä".repeat(2000))).collect();
        let kept = kept(&long, "x");
        assert!(kept.as_array().unwrap().len() < 130 && kept[0]["title"].as_str().unwrap().chars().count() == 512);
    }

    #[test]
    fn a_further_text_moves_its_annotations() {
        let mut first = Annotations::default();
        let mut second = Annotations::default();
        first.add(&json!({"type": "file_path", "file_id": "f", "index": 1}));
        second.add(&json!({"type": "url_citation", "url": "https://e.org", "start_index": 0, "end_index": 2}));
        first.append(&second, 5);
        let list = json!(first.within("12345ab"));
        assert_eq!((&list[0]["index"], &list[1]["start_index"], &list[1]["end_index"]), (&json!(1), &json!(5), &json!(7)));
    }
}
