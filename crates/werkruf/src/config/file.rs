//! `werkruf.toml`: its shape, and how every fault in it is found in one go.
//!
//! A deserializer stops at the first fault. So the fault is noted, the value it is about is taken out of the document,
//! and the rest is read again, until nothing is left to complain about.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};
use werkruf_runtime::{Assistant, SafetyProfile};
use werkruf_tools::HttpToolConfig;

use super::violation::ConfigViolation;

/// More faults than this are not worth listing at once; it also bounds the reading again.
const MOST_FAULTS: usize = 64;

/// Everything the file may say.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub listen: Option<String>,
    pub database: Option<String>,
    pub public_url: Option<String>,
    pub trusted_proxies: Vec<String>,
    pub cors_origins: Vec<String>,
    pub sample_data: Option<bool>,
    pub prices: Option<PathBuf>,
    pub disabled_tools: Vec<String>,
    pub postgres: PostgresSection,
    pub log: LogSection,
    pub model: ModelSection,
    pub embedding: EmbeddingSection,
    pub auth: AuthSection,
    pub retention: RetentionSection,
    /// Judged one by one, so that each bad value has its own path.
    pub limits: BTreeMap<String, u64>,
    pub assistants: Vec<Assistant>,
    pub tools: Vec<HttpToolConfig>,
    pub safety: HashMap<String, SafetyProfile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PostgresSection {
    pub schema: Option<String>,
    pub connections: Option<u32>,
    pub poll_only: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LogSection {
    pub filter: Option<String>,
    pub format: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ModelSection {
    pub offline: bool,
    pub base_url: Option<String>,
    pub name: Option<String>,
    pub api: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub max_output_tokens: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EmbeddingSection {
    pub base_url: Option<String>,
    pub model: Option<String>,
    pub languages: Vec<String>,
}

/// Any whole number, so that each bad one is told what is wrong with it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RetentionSection {
    pub messages_days: Option<i64>,
    pub events_days: Option<i64>,
    pub calls_days: Option<i64>,
    pub usage_days: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthSection {
    pub unknown_users: Option<String>,
    pub guest_role: Option<String>,
    pub jwt: Option<JwtSection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JwtSection {
    pub issuer: Option<String>,
    pub audience: Option<String>,
    pub jwks_url: Option<String>,
    pub tenant_claim: Option<String>,
    pub roles_claim: Option<String>,
    pub tenant: Option<String>,
}

/// Where each value of the file stands, so that a fault found later still has its line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    lines: Arc<Vec<(String, usize)>>,
    /// Items of a list that could be read, by their places in the file: `/tools/0` may really be `/tools/1`.
    read: Arc<HashMap<String, String>>,
}

impl Places {
    /// A violation at this place of the file, with its line where the place exists.
    pub(crate) fn violation(&self, place: &str, message: impl Into<String>) -> ConfigViolation {
        let place = &self.in_file(place);
        let mut known = place.as_str();
        // What is missing has no line; its table has.
        let line = loop {
            if let Some((_, line)) = self.lines.iter().find(|(name, _)| name == known) {
                break Some(*line);
            }
            match known.rsplit_once('/') {
                Some((outer, _)) => known = outer,
                None => break None,
            }
        };
        ConfigViolation::new(place, message).on_line(line)
    }

    fn in_file(&self, place: &str) -> String {
        let end = place.match_indices('/').nth(2).map_or(place.len(), |(at, _)| at);
        let (item, rest) = place.split_at(end);
        self.read.get(item).map_or_else(|| place.to_owned(), |real| format!("{real}{rest}"))
    }
}

/// A file that was read, with what is needed to say where something stands.
pub(super) struct Document {
    pub path: Option<PathBuf>,
    pub file: File,
    pub places: Places,
}

impl Document {
    /// No file at all: everything by default.
    pub(super) fn absent() -> Self {
        Self { path: None, file: File::default(), places: Places::default() }
    }

    /// Reads the text; faults are added to `violations` and what they are about is left out.
    pub(super) fn parse(path: PathBuf, text: &str, violations: &mut Vec<ConfigViolation>) -> Self {
        let (tree, faults) = DeTable::parse_recoverable(text);
        if !faults.is_empty() {
            violations.extend(faults.iter().map(|fault| {
                let line = fault.span().map(|span| line_of(text, span.start));
                ConfigViolation::new("", format!("is not TOML: {}", fault.message())).on_line(line)
            }));
            return Self { path: Some(path), ..Self::absent() };
        }
        let whole = DeValue::Table(tree.get_ref().clone());
        let mut places = Vec::new();
        collect_places(&whole, "", &mut |place, span| places.push((place, span)));
        let (file, tree) = read_all(tree, &places, text, violations);
        let read = items(tree.get_ref(), &places);
        let lines = places.into_iter().map(|(place, span)| (place, line_of(text, span.start))).collect();
        Self { path: Some(path), file, places: Places { lines: Arc::new(lines), read: Arc::new(read) } }
    }

    /// A violation at this place of the file.
    pub(super) fn violation(&self, place: &str, message: impl Into<String>) -> ConfigViolation {
        self.places.violation(place, message)
    }
}

fn read_all<'a>(
    mut tree: Spanned<DeTable<'a>>,
    places: &[(String, Range<usize>)],
    text: &str,
    violations: &mut Vec<ConfigViolation>,
) -> (File, Spanned<DeTable<'a>>) {
    for _ in 0..MOST_FAULTS {
        match File::deserialize(toml::de::Deserializer::from(tree.clone())) {
            Ok(file) => return (file, tree),
            Err(fault) => {
                let span = fault.span().unwrap_or(0..0);
                let place = deepest(places, &span);
                let removed = place.is_some_and(|(_, at)| remove(tree.get_mut(), at));
                let path = place.map_or_else(String::new, |(path, _)| path.clone());
                violations.push(ConfigViolation::new(path, plain(fault.message())).on_line(Some(line_of(text, span.start))));
                if !removed {
                    break;
                }
            }
        }
    }
    (File::default(), tree)
}

/// Which item of which list in the file each item that was read is.
fn items(table: &DeTable<'_>, places: &[(String, Range<usize>)]) -> HashMap<String, String> {
    let mut found = HashMap::new();
    for (key, value) in table {
        for (at, item) in value.get_ref().as_array().into_iter().flat_map(|list| list.iter().enumerate()) {
            let list = format!("/{}/", key.get_ref());
            let real =
                places.iter().find(|(path, span)| *span == item.span() && path.strip_prefix(&list).is_some_and(|rest| !rest.contains('/')));
            found.extend(real.map(|(path, _)| (format!("{list}{at}"), path.clone())));
        }
    }
    found
}

/// Serde's words, made fit to follow a path.
fn plain(message: &str) -> String {
    match message.strip_prefix("unknown field ") {
        Some(rest) => format!("unknown key {rest}; correct or remove it"),
        None => message.to_owned(),
    }
}

/// The innermost place that holds the span. A value's place covers its key and itself.
fn deepest<'a>(places: &'a [(String, Range<usize>)], span: &Range<usize>) -> Option<&'a (String, Range<usize>)> {
    places
        .iter()
        .filter(|(_, at)| at.start <= span.start && span.end <= at.end)
        .min_by_key(|(path, at)| (at.end - at.start, usize::MAX - path.len()))
}

fn key_and_value(key: &Spanned<std::borrow::Cow<'_, str>>, value: &Spanned<DeValue<'_>>) -> Range<usize> {
    let (key, value) = (key.span(), value.span());
    // A `[header]` table's span lies elsewhere than its key's.
    key.start.min(value.start)..key.end.max(value.end)
}

fn collect_places(value: &DeValue<'_>, path: &str, note: &mut dyn FnMut(String, Range<usize>)) {
    match value {
        DeValue::Table(table) => {
            for (key, inner) in table {
                let place = format!("{path}/{}", key.get_ref());
                note(place.clone(), key_and_value(key, inner));
                collect_places(inner.get_ref(), &place, note);
            }
        }
        DeValue::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                let place = format!("{path}/{at}");
                note(place.clone(), inner.span());
                collect_places(inner.get_ref(), &place, note);
            }
        }
        DeValue::String(_) | DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {}
    }
}

/// Takes the value at this span out of the tree; false when it is not there. The innermost comes first: a list of one
/// table may have the same span as the table.
fn remove(table: &mut DeTable<'_>, at: &Range<usize>) -> bool {
    if table.iter_mut().any(|(_, value)| remove_inside(value.get_mut(), at)) {
        return true;
    }
    let here = table.iter().find(|(key, value)| key_and_value(key, value) == *at).map(|(key, _)| key.clone());
    here.is_some_and(|key| table.remove(&key).is_some())
}

fn remove_inside(value: &mut DeValue<'_>, at: &Range<usize>) -> bool {
    match value {
        DeValue::Table(table) => remove(table, at),
        DeValue::Array(items) => {
            if items.iter_mut().any(|item| remove_inside(item.get_mut(), at)) {
                return true;
            }
            let before = items.len();
            let mut kept = DeArray::new();
            items.iter().filter(|item| item.span() != *at).for_each(|item| kept.push(item.clone()));
            *items = kept;
            items.len() < before
        }
        DeValue::String(_) | DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => false,
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
