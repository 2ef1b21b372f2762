//! `[[webhooks]]`: the programs that are told about turns, and the one that the environment names.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;
use reqwest::Url;
use secrecy::SecretString;
use werkruf_llm::Egress;
use werkruf_runtime::Notification;

use super::environment::{Environment, Variable};
use super::file::{Document, WebhookSection};
use super::suggestion::advice;
use super::violation::ConfigViolation;

/// A shorter key can be guessed.
const SECRET_CHARACTERS: usize = 16;
/// The name of the webhook that the environment names.
const ALERT: &str = "alert";

/// A program that is told about turns.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    pub name: String,
    pub url: Url,
    pub events: Vec<Notification>,
    /// Signs what is sent.
    pub secret: SecretString,
    /// The slug or id of the only tenant that it is told about.
    pub tenant: Option<String>,
}

/// Reads all of them. One with a fault is left out.
pub(super) fn merge(
    document: &Document,
    environment: &Environment,
    egress: &[IpNet],
    violations: &mut Vec<ConfigViolation>,
) -> Vec<WebhookConfig> {
    let mut names = HashSet::new();
    let mut webhooks = Vec::new();
    for (at, section) in document.file.webhooks.iter().enumerate() {
        let before = violations.len();
        let mut refuse = |key: &str, message: String| violations.push(document.violation(&format!("/webhooks/{at}/{key}"), message));
        let webhook = read(section, environment, egress, &mut refuse);
        let Some(webhook) = webhook.filter(|_| violations.len() == before) else { continue };
        if !names.insert(webhook.name.clone()) || webhook.name == ALERT {
            let message = format!("there is already a webhook named `{}`; give this one another name", webhook.name);
            violations.push(document.violation(&format!("/webhooks/{at}/name"), message));
        }
        webhooks.push(webhook);
    }
    webhooks.extend(of_environment(environment, egress, violations));
    webhooks
}

fn read(
    section: &WebhookSection,
    environment: &Environment,
    egress: &[IpNet],
    refuse: &mut dyn FnMut(&str, String),
) -> Option<WebhookConfig> {
    let url = section
        .url
        .as_deref()
        .ok_or_else(|| "is missing; write where the notifications go, such as https://crm.example.org/werkruf".to_owned());
    let url = url.and_then(|url| address(url, egress)).map_err(|message| refuse("url", message)).ok();
    let events = events(&section.events, refuse);
    let secret = match &section.secret_env {
        None => Err("is missing; name the environment variable with the key that signs the notifications".to_owned()),
        Some(name) => secret(environment.lookup(name), name),
    };
    let secret = secret.map_err(|message| refuse("secret_env", message)).ok();
    let name = section.name.clone().or_else(|| url.as_ref()?.host_str().map(|host| host.trim_matches(['[', ']']).replace(':', "-")));
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.as_ref().is_some_and(|name| name.is_empty() || name.len() > 64 || !name.chars().all(fits)) {
        refuse("name", "use 1 to 64 letters, digits, `_`, `-` or `.`".to_owned());
    }
    Some(WebhookConfig { name: name?, url: url?, events, secret: secret?, tenant: section.tenant.clone() })
}

fn events(named: &[String], refuse: &mut dyn FnMut(&str, String)) -> Vec<Notification> {
    let known = || Notification::ALL.into_iter().map(Notification::as_str);
    let all = known().collect::<Vec<_>>().join(", ");
    if named.is_empty() {
        refuse("events", format!("is missing; name at least one of {all}"));
    }
    let read = |(at, name): (usize, &String)| {
        let found = Notification::from_name(name);
        if found.is_none() {
            refuse(&format!("events/{at}"), format!("`{name}` is no event; {}", advice(name, known(), &format!("write one of {all}"))));
        }
        found
    };
    named.iter().enumerate().filter_map(read).collect()
}

/// Whoever reads the way can read plain HTTP, so it is for this machine and for networks that the operator names.
fn address(text: &str, egress: &[IpNet]) -> Result<Url, String> {
    // The message does not contain the address, which may hold a password.
    let url = Url::parse(text).map_err(|error| format!("{error}; write a whole address such as https://crm.example.org/werkruf"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("must start with https:// and name a host".to_owned());
    }
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let ip = host.parse::<IpAddr>().ok();
    if ip.is_some_and(Egress::never_reaches) {
        return Err("is a link-local or metadata address, which no notification may reach".to_owned());
    }
    let near = host.eq_ignore_ascii_case("localhost")
        || ip.is_some_and(|ip| ip.to_canonical().is_loopback() || egress.iter().any(|network| network.contains(&ip.to_canonical())));
    if url.scheme() == "http" && !near {
        return Err("must be https://; http:// is for this machine and for addresses that `[egress] allow` names".to_owned());
    }
    Ok(url)
}

fn secret(value: Option<&str>, name: &str) -> Result<SecretString, String> {
    let value = value.ok_or_else(|| format!("the environment variable {name} is not set or empty; set it before the server starts"))?;
    if value.chars().count() < SECRET_CHARACTERS {
        return Err(format!("{name} is shorter than {SECRET_CHARACTERS} characters; `openssl rand -hex 32` makes a good one"));
    }
    Ok(SecretString::from(value))
}

/// `WERKRUF_ALERT_WEBHOOK_URL` gets every event of every tenant.
fn of_environment(environment: &Environment, egress: &[IpNet], violations: &mut Vec<ConfigViolation>) -> Option<WebhookConfig> {
    let url = environment.get(Variable::WERKRUF_ALERT_WEBHOOK_URL)?;
    let variable = Variable::WERKRUF_ALERT_WEBHOOK_SECRET;
    let url = address(url, egress).map_err(|message| ConfigViolation::new(Variable::WERKRUF_ALERT_WEBHOOK_URL.name(), message));
    let secret = secret(environment.get(variable), variable.name()).map_err(|message| ConfigViolation::new(variable.name(), message));
    match (url, secret) {
        (Ok(url), Ok(secret)) => {
            Some(WebhookConfig { name: ALERT.to_owned(), url, events: Notification::ALL.to_vec(), secret, tenant: None })
        }
        (url, secret) => {
            violations.extend(url.err().into_iter().chain(secret.err()));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::Flags;
    use super::super::merge::merge;
    use super::{Document, Environment};

    const KEYS: [(&str, &str); 2] = [("LONG", "0123456789abcdef"), ("SHORT", "0123")];

    /// The names and addresses of the webhooks, and the faults.
    fn read(text: &str, more: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let mut violations = Vec::new();
        let document = Document::parse(PathBuf::from("werkruf.toml"), text, &mut violations);
        let environment = Environment::of(KEYS.iter().chain(more).copied());
        let flags = Flags { config: Some(PathBuf::from("werkruf.toml")), ..Flags::default() };
        let config = merge(&document, &flags, &environment, &mut violations);
        let webhooks = config.webhooks.iter().map(|webhook| format!("{} {} {}", webhook.name, webhook.url, webhook.events.len()));
        (webhooks.collect(), violations.iter().map(|found| format!("{}: {}", found.path, found.message)).collect())
    }

    fn webhook(url: &str, events: &str, more: &str) -> String {
        format!("[[webhooks]]\nurl = '{url}'\nevents = [{events}]\n{more}\n")
    }

    #[test]
    fn webhooks_are_read_and_named() {
        let text = webhook("https://crm.example.org/in", "'turn_failed', 'dead_letter'", "secret_env = 'LONG'")
            + &webhook("http://127.0.0.1:9/x", "'turn_finished'", "secret_env = 'LONG'\nname = 'local'\ntenant = 'demo'")
            + &webhook("http://10.1.2.3/x", "'turn_finished'", "secret_env = 'LONG'")
            + "[egress]\nallow = ['10.0.0.0/8']\n";
        let alert = [("WERKRUF_ALERT_WEBHOOK_URL", "http://localhost:9/a"), ("WERKRUF_ALERT_WEBHOOK_SECRET", "0123456789abcdef")];
        let expected = [
            "crm.example.org https://crm.example.org/in 2",
            "local http://127.0.0.1:9/x 1",
            "10.1.2.3 http://10.1.2.3/x 1",
            "alert http://localhost:9/a 15",
        ];
        assert_eq!(read(&text, &alert), (expected.map(str::to_owned).to_vec(), Vec::new()));
    }

    #[test]
    fn every_fault_is_named_with_what_to_write() {
        let refused = |text: String, expected: &[&str]| {
            let (_, faults) = read(&text, &[]);
            assert_eq!(faults.len(), expected.len(), "{faults:?}");
            for (fault, expected) in faults.iter().zip(expected) {
                assert!(fault.starts_with(expected), "{fault} is not {expected}");
            }
        };
        let ok = "secret_env = 'LONG'";
        refused(
            "[[webhooks]]\n".to_owned(),
            &["/webhooks/0/url: is missing", "/webhooks/0/events: is missing", "/webhooks/0/secret_env: is missing"],
        );
        refused(webhook("http://crm.example.org/", "'turn_failed'", ok), &["/webhooks/0/url: must be https://"]);
        refused(webhook("http://169.254.169.254/", "'turn_failed'", ok), &["/webhooks/0/url: is a link-local or metadata address"]);
        refused(webhook("ftp://crm.example.org/", "'turn_failed'", ok), &["/webhooks/0/url: must start with https://"]);
        refused(
            webhook("https://crm.example.org/", "'turn_faild', 'nothing'", ok),
            &[
                "/webhooks/0/events/0: `turn_faild` is no event; did you mean `turn_failed`?",
                "/webhooks/0/events/1: `nothing` is no event; write one of",
            ],
        );
        refused(
            webhook("https://crm.example.org/", "'turn_failed'", "secret_env = 'NONE'"),
            &["/webhooks/0/secret_env: the environment variable NONE"],
        );
        refused(
            webhook("https://crm.example.org/", "'turn_failed'", "secret_env = 'SHORT'"),
            &["/webhooks/0/secret_env: SHORT is shorter"],
        );
        let twice = webhook("https://crm.example.org/1", "'turn_failed'", ok) + &webhook("https://crm.example.org/2", "'turn_failed'", ok);
        refused(twice, &["/webhooks/1/name: there is already a webhook named `crm.example.org`"]);
        refused(
            webhook("https://crm.example.org/", "'turn_failed'", "secret_env = 'LONG'\nname = 'a:b'"),
            &["/webhooks/0/name: use 1 to 64"],
        );
        let (_, faults) = read("", &[("WERKRUF_ALERT_WEBHOOK_URL", "https://a.example.org/")]);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].starts_with("WERKRUF_ALERT_WEBHOOK_SECRET: the environment variable"), "{faults:?}");
    }
}
