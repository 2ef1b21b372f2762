//! `werkruf.toml`: its structure, and how all faults in it are found in one pass.
//!
//! A deserializer stops at the first fault. So the fault is recorded, the faulty value is removed from the document, and the
//! rest is read again, until it has no faults.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};
use werkruf_runtime::{Assistant, SafetyProfile};
use werkruf_tools::ToolSection;

use super::alerts::AlertsSection;
use super::budgets::BudgetSection;
use super::openai::OpenAiSection;
use super::suggestion::advice;
use super::violation::ConfigViolation;
use super::whatsapp::WhatsAppSection;

/// At most this many faults are listed; this also bounds how often the document is read again.
const MAX_FAULTS: usize = 64;

/// All keys of the file.
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
    pub metrics: MetricsSection,
    pub tls: TlsSection,
    pub model: ModelSection,
    pub embedding: EmbeddingSection,
    pub auth: AuthSection,
    pub retention: RetentionSection,
    pub approvals: ApprovalsSection,
    pub openai: OpenAiSection,
    pub alerts: AlertsSection,
    pub egress: EgressSection,
    pub workspace: Option<ModuleSection>,
    pub flights: Option<ModuleSection>,
    pub knowledge: Option<KnowledgeSection>,
    pub ask_gpt: Option<ModuleSection>,
    pub whatsapp: WhatsAppSection,
    /// Checked one by one, so that each invalid value has its own path.
    pub limits: BTreeMap<String, u64>,
    pub assistants: Vec<Assistant>,
    pub tools: Vec<ToolSection>,
    pub webhooks: Vec<WebhookSection>,
    pub budgets: Vec<BudgetSection>,
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
    pub arguments: bool,
}

/// `[metrics]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MetricsSection {
    pub listen: Option<String>,
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

/// `[tls]`: the certificate of the listener.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TlsSection {
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// `[egress]`: the private networks that tools may reach by name.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EgressSection {
    pub allow: Vec<String>,
}

/// A module without settings. The section itself switches the module on.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ModuleSection {}

/// `[knowledge]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct KnowledgeSection {
    pub reader_sandbox: Option<String>,
}

/// One of `[[webhooks]]`. A missing key is reported with the others.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WebhookSection {
    pub name: Option<String>,
    pub url: Option<String>,
    pub events: Vec<String>,
    pub secret_env: Option<String>,
    pub tenant: Option<String>,
}

/// `[approvals]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ApprovalsSection {
    pub four_eyes: Option<bool>,
    pub provider_role: Option<String>,
}

/// Any whole number is read, so that each invalid one gets its own message.
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
    /// Any whole number is read, so that an invalid one gets its own message.
    pub key_max_age_days: Option<i64>,
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
    pub unknown_roles: Option<String>,
}

/// The position of each value in the file, so that a fault found later still has its line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    lines: Arc<Vec<(String, usize)>>,
    /// Maps the items that could be read to their places in the file: `/tools/0` may be `/tools/1` there.
    read: Arc<HashMap<String, String>>,
}

impl Places {
    /// A violation at this place of the file, with its line if the place exists.
    pub(crate) fn violation(&self, place: &str, message: impl Into<String>) -> ConfigViolation {
        let place = &self.in_file(place);
        let mut known = place.as_str();
        // A missing key has no line; the line of its table is used.
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

/// A file that was read, with the places of its values.
pub(super) struct Document {
    pub path: Option<PathBuf>,
    pub file: File,
    pub places: Places,
    /// The names of variables that occur in the file.
    pub variables: HashSet<String>,
}

impl Document {
    /// No file: every key has its default.
    pub(super) fn absent() -> Self {
        Self { path: None, file: File::default(), places: Places::default(), variables: HashSet::new() }
    }

    /// Reads the text; faults are added to `violations`, and the faulty values are left out.
    pub(super) fn parse(path: PathBuf, text: &str, violations: &mut Vec<ConfigViolation>) -> Self {
        let (tree, faults) = DeTable::parse_recoverable(text);
        if !faults.is_empty() {
            let mut found: Vec<ConfigViolation> = faults
                .iter()
                .map(|fault| {
                    let line = fault.span().map(|span| line_of(text, span.start));
                    let name = path.display().to_string();
                    ConfigViolation::new(name, format!("is not TOML: {}", fault.message().replace('\n', ", "))).on_line(line)
                })
                .collect();
            found.sort_by_key(|violation| violation.line);
            violations.extend(found);
            return Self { path: Some(path), ..Self::absent() };
        }
        let whole = DeValue::Table(tree.get_ref().clone());
        let mut places = Vec::new();
        collect_places(&whole, "", &mut |place, span| places.push((place, span)));
        let mut faults = Vec::new();
        let (file, tree) = read_all(tree, &places, text, &mut faults);
        faults.sort_by_key(|fault| fault.line);
        violations.extend(faults);
        let read = items(tree.get_ref(), &places);
        let lines = places.into_iter().map(|(place, span)| (place, line_of(text, span.start))).collect();
        let places = Places { lines: Arc::new(lines), read: Arc::new(read) };
        Self { path: Some(path), file, places, variables: variables_in(text) }
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
    for _ in 0..MAX_FAULTS {
        match File::deserialize(toml::de::Deserializer::from(tree.clone())) {
            Ok(file) => return (file, tree),
            Err(fault) => {
                let span = fault.span().unwrap_or(0..0);
                let place = deepest(places, &span);
                let removed = place.is_some_and(|(_, at)| remove(tree.get_mut(), at));
                let path = place.map_or_else(String::new, |(path, _)| path.clone());
                violations.push(ConfigViolation::new(path, reworded(fault.message())).on_line(Some(line_of(text, span.start))));
                if !removed {
                    break;
                }
            }
        }
    }
    (File::default(), tree)
}

/// Maps each list item that was read to its place in the file.
fn items(table: &DeTable<'_>, places: &[(String, Range<usize>)]) -> HashMap<String, String> {
    let mut items = HashMap::new();
    for (key, value) in table {
        for (at, item) in value.get_ref().as_array().into_iter().flat_map(|list| list.iter().enumerate()) {
            let list = format!("/{}/", key.get_ref());
            let real =
                places.iter().find(|(path, span)| *span == item.span() && path.strip_prefix(&list).is_some_and(|rest| !rest.contains('/')));
            items.extend(real.map(|(path, _)| (format!("{list}{at}"), path.clone())));
        }
    }
    items
}

/// Serde's message, reworded to follow a path. It quotes the unknown name first, and then the known ones.
fn reworded(message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (kind, [wrong, known @ ..]) = (message, quoted.as_slice()) else { return message.to_owned() };
    let what = if kind.starts_with("unknown field") { "key" } else { "value" };
    if !kind.starts_with("unknown field") && !kind.starts_with("unknown variant") {
        return message.to_owned();
    }
    let known_names = if known.is_empty() { "correct or remove it".to_owned() } else { format!("write one of {}", known.join(", ")) };
    format!("unknown {what} `{wrong}`; {}", advice(wrong, known.iter().copied(), &known_names))
}

/// The innermost place that contains the span. The place of a value covers the value and its key.
fn deepest<'a>(places: &'a [(String, Range<usize>)], span: &Range<usize>) -> Option<&'a (String, Range<usize>)> {
    places
        .iter()
        .filter(|(_, at)| at.start <= span.start && span.end <= at.end)
        .min_by_key(|(path, at)| (at.end - at.start, usize::MAX - path.len()))
}

fn key_and_value(key: &Spanned<std::borrow::Cow<'_, str>>, value: &Spanned<DeValue<'_>>) -> Range<usize> {
    let (key, value) = (key.span(), value.span());
    // The span of a `[header]` table does not begin at its key.
    key.start.min(value.start)..key.end.max(value.end)
}

fn collect_places(value: &DeValue<'_>, path: &str, record: &mut dyn FnMut(String, Range<usize>)) {
    match value {
        DeValue::Table(table) => {
            for (key, inner) in table {
                let place = format!("{path}/{}", key.get_ref());
                record(place.clone(), key_and_value(key, inner));
                collect_places(inner.get_ref(), &place, record);
            }
        }
        DeValue::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                let place = format!("{path}/{at}");
                record(place.clone(), inner.span());
                collect_places(inner.get_ref(), &place, record);
            }
        }
        DeValue::String(_) | DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {}
    }
}

/// Removes the value at this span from the tree; false if there is none. The innermost value is tried first: a list of one
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

/// Every word in the text that may be the name of a variable.
fn variables_in(text: &str) -> HashSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.contains('_')).map(str::to_owned).collect()
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
