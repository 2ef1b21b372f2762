//! `[whatsapp]`: the numbers, each with its credentials, and the keywords. Credentials come from the environment only.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use werkruf_contract::{Language, Uuid};

use super::environment::{Environment, Variable};
use super::file::Document;
use super::model::address_fault;
use super::violation::ConfigViolation;
use crate::whatsapp::keywords::{KeywordSection, Keywords, named_tools};
use crate::whatsapp::{Number, WhatsAppSettings};

const GRAPH: &str = "https://graph.facebook.com";
const API_VERSION: &str = "v26.0";
const RECONCILE_S: u32 = 30;
/// A message that nobody reported for an hour is decided some other way.
const MAX_RECONCILE_S: u32 = 3600;

/// `[whatsapp]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WhatsAppSection {
    pub base_url: Option<String>,
    pub api_version: Option<String>,
    pub reconcile_s: Option<u32>,
    pub numbers: Vec<NumberSection>,
    /// By language.
    pub keywords: BTreeMap<String, KeywordSection>,
}

/// `[[whatsapp.numbers]]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NumberSection {
    pub phone_number_id: String,
    pub tenant: String,
    pub branch_id: Option<i64>,
    pub access_token_env: Option<String>,
    pub app_secret_env: Option<String>,
    pub verify_token_env: Option<String>,
    pub template: Option<String>,
    pub approval_template: Option<String>,
    pub template_language: Option<String>,
    pub assistant: Option<String>,
}

impl NumberSection {
    /// The variables of its secrets.
    pub(super) fn variables(&self) -> [&str; 3] {
        [
            self.access_token_env.as_deref().unwrap_or(Variable::WHATSAPP_ACCESS_TOKEN.name()),
            self.app_secret_env.as_deref().unwrap_or(Variable::WHATSAPP_APP_SECRET.name()),
            self.verify_token_env.as_deref().unwrap_or(Variable::WHATSAPP_VERIFY_TOKEN.name()),
        ]
    }
}

pub(super) fn merge(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> WhatsAppSettings {
    let section = &document.file.whatsapp;
    let mut settings = WhatsAppSettings {
        base_url: base_url(document, environment, violations),
        api_version: api_version(document, environment, violations),
        reconcile: Duration::from_secs(reconcile_s(document, environment, violations).into()),
        numbers: Vec::new(),
        keywords: keywords(document, violations),
        app_secret: environment.get(Variable::WHATSAPP_APP_SECRET).map(SecretString::from),
        verify_token: environment.get(Variable::WHATSAPP_VERIFY_TOKEN).map(SecretString::from),
    };
    let mut ids = HashSet::new();
    for (at, number) in section.numbers.iter().enumerate() {
        let place = format!("/whatsapp/numbers/{at}");
        if !ids.insert(number.phone_number_id.as_str()) {
            let message = format!("there is already a number with the id `{}`; remove one", number.phone_number_id);
            violations.push(document.violation(&format!("{place}/phone_number_id"), message));
        }
        settings.numbers.extend(read_number(document, environment, number, &place, violations));
    }
    settings.numbers.extend(number_of_environment(document, environment, violations));
    settings
}

/// The tools that keywords name, each with its place in the file.
pub(super) fn keyword_tools(document: &Document) -> Vec<(String, String)> {
    let sections = document.file.whatsapp.keywords.iter();
    let place = |language: &str, name: &str| format!("/whatsapp/keywords/{language}/{name}");
    sections
        .flat_map(|(language, section)| named_tools(section).map(move |(name, tool)| (place(language, name), tool.to_owned())))
        .collect()
}

/// The variables that hold secrets of numbers.
pub(super) fn secret_variables(document: &Document) -> Vec<String> {
    document.file.whatsapp.numbers.iter().flat_map(NumberSection::variables).map(str::to_owned).collect()
}

/// The number that the variables name.
fn number_of_environment(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Option<Number> {
    let variable = Variable::WHATSAPP_PHONE_NUMBER_ID;
    let id = environment.get(variable)?;
    if !document.file.whatsapp.numbers.is_empty() {
        let message = "is set, and the file has [[whatsapp.numbers]]; name the number in one of them";
        violations.push(ConfigViolation::new(variable.name(), message));
        return None;
    }
    let branch = environment.get(Variable::WHATSAPP_BRANCH_ID);
    let branch_id = branch.and_then(|text| text.trim().parse().ok());
    if branch.is_some() && branch_id.is_none() {
        violations.push(ConfigViolation::new(Variable::WHATSAPP_BRANCH_ID.name(), "is not a whole number"));
    }
    let tenant = environment.get(Variable::WHATSAPP_TENANT).unwrap_or(crate::sample::DEMO).to_owned();
    let number = NumberSection { phone_number_id: id.trim().to_owned(), tenant, branch_id, ..NumberSection::default() };
    read_number(document, environment, &number, variable.name(), violations)
}

/// A number with its secrets. Everything that is missing is named.
fn read_number(
    document: &Document,
    environment: &Environment,
    section: &NumberSection,
    place: &str,
    violations: &mut Vec<ConfigViolation>,
) -> Option<Number> {
    let before = violations.len();
    let of_file = place.starts_with('/');
    let inside = |field: &str| if of_file { format!("{place}/{field}") } else { place.to_owned() };
    let id = section.phone_number_id.as_str();
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_digit()) {
        let message = "must be the id of a phone number: the digits that Meta shows under API setup, not the phone number itself";
        violations.push(document.violation(&inside("phone_number_id"), message));
    }
    if section.tenant.trim().is_empty() {
        violations.push(document.violation(&inside("tenant"), "is missing; write the slug or id of the tenant"));
    }
    let fields = ["access_token_env", "app_secret_env", "verify_token_env"];
    let secrets: Vec<SecretString> = section
        .variables()
        .into_iter()
        .zip(fields)
        .filter_map(|(variable, field)| match environment.lookup(variable) {
            Some(secret) => Some(SecretString::from(secret)),
            None => {
                let message = format!("the variable {variable} is not set; the number {id} needs it");
                let place = if of_file { inside(field) } else { variable.to_owned() };
                violations.push(document.violation(&place, message));
                None
            }
        })
        .collect();
    let Ok([access_token, app_secret, verify_token]) = <[SecretString; 3]>::try_from(secrets) else { return None };
    (violations.len() == before).then(|| Number {
        phone_number_id: id.to_owned(),
        place: place.to_owned(),
        tenant: section.tenant.clone(),
        tenant_id: Uuid::nil(),
        branch_id: section.branch_id,
        access_token,
        app_secret,
        verify_token,
        template: section.template.clone(),
        approval_template: section.approval_template.clone(),
        template_language: section.template_language.clone().unwrap_or_else(|| "en".to_owned()),
        assistant: section.assistant.clone().unwrap_or_else(|| "default".to_owned()),
    })
}

fn base_url(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> String {
    let (place, url) = match environment.get(Variable::WHATSAPP_BASE_URL) {
        Some(url) => (Variable::WHATSAPP_BASE_URL.name(), url),
        None => ("/whatsapp/base_url", document.file.whatsapp.base_url.as_deref().unwrap_or(GRAPH)),
    };
    if let Some(fault) = address_fault(url) {
        violations.push(document.violation(place, fault));
    }
    url.trim_end_matches('/').to_owned()
}

fn api_version(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> String {
    let (place, version) = match environment.get(Variable::WHATSAPP_API_VERSION) {
        Some(version) => (Variable::WHATSAPP_API_VERSION.name(), version),
        None => ("/whatsapp/api_version", document.file.whatsapp.api_version.as_deref().unwrap_or(API_VERSION)),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !version.strip_prefix('v').is_some_and(|number| number.split('.').all(digits)) {
        violations
            .push(document.violation(place, format!("`{version}` is not a version of the Graph API; write one such as {API_VERSION}")));
    }
    version.to_owned()
}

fn reconcile_s(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> u32 {
    let (place, seconds) = match environment.get(Variable::WHATSAPP_RECONCILE_S) {
        Some(text) => (Variable::WHATSAPP_RECONCILE_S.name(), text.trim().parse().ok()),
        None => ("/whatsapp/reconcile_s", Some(document.file.whatsapp.reconcile_s.unwrap_or(RECONCILE_S))),
    };
    match seconds {
        Some(seconds @ 1..=MAX_RECONCILE_S) => seconds,
        Some(_) | None => {
            violations.push(document.violation(place, format!("must be 1 to {MAX_RECONCILE_S} seconds")));
            RECONCILE_S
        }
    }
}

fn keywords(document: &Document, violations: &mut Vec<ConfigViolation>) -> Keywords {
    let mut keywords = Keywords::default();
    for (name, section) in &document.file.whatsapp.keywords {
        match Language::parse(name) {
            Some(language) => keywords.apply(language, section),
            None => {
                let place = format!("/whatsapp/keywords/{name}");
                violations.push(document.violation(&place, format!("`{name}` is not a language of keywords; write de, en or es")));
            }
        }
    }
    keywords
}

#[cfg(test)]
#[path = "whatsapp_tests.rs"]
mod tests;
