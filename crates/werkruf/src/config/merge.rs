//! Merges file, environment and flags, and checks rules that span more than one of them.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use secrecy::{ExposeSecret, SecretString};
use werkruf_llm::network;
use werkruf_runtime::Assistant;

use super::database::Database;
use super::environment::{Environment, Variable};
use super::file::Document;
use super::model::address_fault;
use super::violation::ConfigViolation;
use super::{
    AuthConfig, Config, Flags, LogConfig, LogFormat, ModulesOn, RetentionConfig, UnknownUsers, alerts, budgets, embedding, implicit,
    limits, model, openai, postgres, prices, reader, tls, tokens, traces, unread, webhooks, whatsapp,
};

const DEFAULT_LISTEN: ([u8; 4], u16) = ([127, 0, 0, 1], 8080);
pub(crate) const DEFAULT_DATABASE: &str = "data/werkruf.db";
const ADMIN_KEY_CHARACTERS: usize = 16;
/// A hundred years.
const MAX_DAYS: u32 = 36_500;

/// A value and its source.
struct Setting<'a> {
    place: &'a str,
    text: &'a str,
}

/// A flag overrides a variable, a variable overrides the file.
fn setting<'a>(
    flag: (&'a str, Option<&'a String>),
    variable: Option<(&'a str, &'a str)>,
    file: (&'a str, Option<&'a String>),
) -> Option<Setting<'a>> {
    let flag = flag.1.map(|text| Setting { place: flag.0, text });
    let variable = variable.map(|(place, text)| Setting { place, text });
    let file = file.1.map(|text| Setting { place: file.0, text });
    flag.or(variable).or(file)
}

pub(super) fn merge(document: &Document, flags: &Flags, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Config {
    let variable = |variable: Variable| environment.get(variable).map(|text| (variable.name(), text));
    let listen =
        setting(("--listen", flags.listen.as_ref()), variable(Variable::WERKRUF_LISTEN), ("/listen", document.file.listen.as_ref()));
    let listen = listen.map_or_else(|| Ok(SocketAddr::from(DEFAULT_LISTEN)), |setting| address(document, &setting));
    let metrics_listen =
        setting(("", None), variable(Variable::WERKRUF_METRICS_LISTEN), ("/metrics/listen", document.file.metrics.listen.as_ref()));
    let metrics_listen = metrics_listen.and_then(|setting| address(document, &setting).map_err(|fault| violations.push(fault)).ok());
    let database = setting(
        ("--database", flags.database.as_ref()),
        variable(Variable::WERKRUF_DATABASE),
        ("/database", document.file.database.as_ref()),
    );
    let default_database = || Database::Sqlite(PathBuf::from(DEFAULT_DATABASE));
    let database = database.map_or_else(
        || Ok(default_database()),
        |setting| Database::parse(setting.text).map_err(|message| document.violation(setting.place, message)),
    );
    let listen = listen.unwrap_or_else(|violation| reject(violations, violation, SocketAddr::from(DEFAULT_LISTEN)));
    let database = database.unwrap_or_else(|violation| reject(violations, violation, default_database()));
    let limits = limits::merge(document, environment, violations);
    let model = model::merge(document, environment, violations);
    let modules = ModulesOn::of(document, violations);
    let egress = egress(document, violations);
    let config = Config {
        listen,
        metrics_listen,
        alerts: alerts::merge(document, &database, violations),
        database,
        postgres: postgres::merge(document, environment, limits.turns.lease_ttl_ms, violations),
        admin_key: admin_key(environment, violations),
        cors_origins: list(environment, Variable::WERKRUF_CORS_ORIGINS, &document.file.cors_origins),
        public_url: public_url(document, environment, violations),
        trusted_proxies: list(environment, Variable::WERKRUF_TRUSTED_PROXIES, &document.file.trusted_proxies),
        tls: tls::merge(document, environment, violations),
        limits: limits.turns,
        connections: limits.connections,
        requests: limits.requests,
        bytes_in_flight: limits.bytes_in_flight,
        auth: auth(document, violations),
        retention: retention(document, violations),
        tokens: tokens::merge(document, environment, violations),
        prices: prices::merge(document, environment, violations),
        embedding: embedding::merge(document, environment, &model, violations),
        model,
        modules,
        budgets: budgets::merge(document, violations),
        webhooks: webhooks::merge(document, environment, &egress, violations),
        egress,
        #[cfg(feature = "flights")]
        flights: if modules.flights { super::flights::merge(environment, violations) } else { Default::default() },
        whatsapp: whatsapp::merge(document, environment, violations),
        keyword_tools: whatsapp::keyword_tools(document),
        whatsapp_secrets: whatsapp::secret_variables(document),
        reader: reader::merge(document, environment, violations),
        secret_key: secret_key(environment, violations),
        log: log(document, environment, violations),
        traces: traces::merge(environment, violations),
        assistants: assistants(document, violations),
        sample_data: switch(environment, Variable::WERKRUF_SAMPLE_DATA, violations).or(document.file.sample_data),
        test_tools: switch(environment, Variable::WERKRUF_TEST_TOOLS, violations).unwrap_or(false),
        clock_offset_s: clock_offset(environment, violations),
        flags: flags.clone(),
        environment: environment.clone(),
        tools: document.file.tools.clone(),
        disabled_tools: document.file.disabled_tools.clone(),
        safety: document.file.safety.clone(),
        on_disconnect: openai::merge(document, violations),
        provider_role: provider_role(document, violations),
        four_eyes: document.file.approvals.four_eyes.unwrap_or(document.path.is_some() || !listen.ip().is_loopback()),
        file: document.path.clone(),
        warnings: unread::warnings(document, flags, environment),
        places: document.places.clone(),
    };
    check_lists(document, &config, violations);
    check_loopback(&config, violations);
    implicit::check(document, flags, environment, violations);
    config
}

/// Records a violation and returns the value to continue with.
pub(super) fn reject<T>(violations: &mut Vec<ConfigViolation>, violation: ConfigViolation, fallback: T) -> T {
    violations.push(violation);
    fallback
}

fn address(document: &Document, setting: &Setting<'_>) -> Result<SocketAddr, ConfigViolation> {
    let text = setting.text.strip_prefix("localhost:").map_or_else(|| setting.text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| {
        document.violation(setting.place, format!("`{}` is not an address to listen on; write one such as 127.0.0.1:8080", setting.text))
    })
}

fn provider_role(document: &Document, violations: &mut Vec<ConfigViolation>) -> String {
    match document.file.approvals.provider_role.as_deref() {
        None => "admin".to_owned(),
        Some(role) if role.trim().is_empty() => {
            let message = "must name a role, such as \"admin\"";
            reject(violations, document.violation("/approvals/provider_role", format!("`provider_role` {message}")), String::new())
        }
        Some(role) => role.to_owned(),
    }
}

fn secret_key(environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Option<SecretString> {
    let key = environment.get(Variable::WERKRUF_SECRET_KEY)?;
    if crate::secret_key::read(key).is_none() {
        violations.push(crate::secret_key::fault());
    }
    Some(SecretString::from(key))
}

fn admin_key(environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Option<SecretString> {
    let key = SecretString::from(environment.get(Variable::WERKRUF_ADMIN_KEY)?);
    if key.expose_secret().chars().count() < ADMIN_KEY_CHARACTERS {
        let message = format!("is shorter than {ADMIN_KEY_CHARACTERS} characters; `openssl rand -hex 32` makes a good one");
        violations.push(ConfigViolation::new(Variable::WERKRUF_ADMIN_KEY.name(), message));
    }
    Some(key)
}

fn list(environment: &Environment, variable: Variable, file: &[String]) -> Vec<String> {
    match environment.get(variable) {
        Some(text) => text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect(),
        None => file.to_vec(),
    }
}

fn public_url(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Option<String> {
    let (place, url) = match environment.get(Variable::WERKRUF_PUBLIC_URL) {
        Some(url) => (Variable::WERKRUF_PUBLIC_URL.name(), url),
        None => ("/public_url", document.file.public_url.as_deref()?),
    };
    if address_fault(url).is_some() {
        violations.push(document.violation(place, "must start with http:// or https:// and name a host, such as https://chat.example.org"));
    }
    Some(url.trim_end_matches('/').to_owned())
}

fn auth(document: &Document, violations: &mut Vec<ConfigViolation>) -> AuthConfig {
    let section = &document.file.auth;
    let unknown_users = match section.unknown_users.as_deref() {
        None | Some("refuse") => UnknownUsers::Refuse,
        Some("guest") => UnknownUsers::Guest,
        Some(other) => {
            let violation = document.violation("/auth/unknown_users", format!("`{other}` is unknown; write \"refuse\" or \"guest\""));
            reject(violations, violation, UnknownUsers::Refuse)
        }
    };
    let days = section.key_max_age_days;
    let key_max_age_days = days.and_then(|days| u32::try_from(days).ok()).filter(|days| (1..=MAX_DAYS).contains(days));
    if days.is_some() && key_max_age_days.is_none() {
        let message = format!("must be 1 to {MAX_DAYS} days; leave it out for keys without a maximum age");
        violations.push(document.violation("/auth/key_max_age_days", message));
    }
    AuthConfig { unknown_users, guest_role: section.guest_role.clone().unwrap_or_else(|| "guest".to_owned()), key_max_age_days }
}

fn retention(document: &Document, violations: &mut Vec<ConfigViolation>) -> RetentionConfig {
    let section = &document.file.retention;
    let mut days = |kind: &str, days: Option<i64>| {
        let days = days?;
        let valid = u32::try_from(days).ok().filter(|days| (1..=MAX_DAYS).contains(days));
        if valid.is_none() {
            let message = format!("must be 1 to {MAX_DAYS} days; leave it out to keep {kind} for good");
            violations.push(document.violation(&format!("/retention/{kind}_days"), message));
        }
        valid
    };
    let retention = RetentionConfig {
        messages_days: days("messages", section.messages_days),
        events_days: days("events", section.events_days),
        calls_days: days("calls", section.calls_days),
        usage_days: days("usage", section.usage_days),
    };
    // A reusable result is read from the call's row. If the row were deleted too early, the call would run a second time.
    let longest_reuse = document.file.tools.iter().filter_map(|tool| Some((tool.reuse_s?, tool.name()))).max();
    if let (Some(days), Some((reuse_s, name))) = (retention.calls_days, longest_reuse)
        && reuse_s > u64::from(days) * 86_400
    {
        let message = format!("must not be shorter than reuse_s of the tool {name} ({reuse_s} seconds)");
        violations.push(document.violation("/retention/calls_days", message));
    }
    retention
}

fn log(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> LogConfig {
    let section = &document.file.log;
    let (place, filter) = match environment.get(Variable::WERKRUF_LOG) {
        Some(filter) => (Variable::WERKRUF_LOG.name(), filter),
        None => ("/log/filter", section.filter.as_deref().unwrap_or("info")),
    };
    if let Err(error) = crate::telemetry::read_filter(filter) {
        violations.push(document.violation(place, format!("is not a filter: {error}; write one such as info or werkruf=debug,info")));
    }
    let (place, format) = match environment.get(Variable::WERKRUF_LOG_FORMAT) {
        Some(format) => (Variable::WERKRUF_LOG_FORMAT.name(), Some(format)),
        None => ("/log/format", section.format.as_deref()),
    };
    let format = match format {
        None => None,
        Some("text") => Some(LogFormat::Text),
        Some("json") => Some(LogFormat::Json),
        Some(other) => reject(violations, document.violation(place, format!("`{other}` is unknown; write `text` or `json`")), None),
    };
    let arguments = switch(environment, Variable::WERKRUF_LOG_ARGUMENTS, violations).unwrap_or(section.arguments);
    LogConfig { filter: filter.to_owned(), format, arguments }
}

pub(super) fn switch(environment: &Environment, variable: Variable, violations: &mut Vec<ConfigViolation>) -> Option<bool> {
    match environment.get(variable)? {
        "on" | "1" | "true" => Some(true),
        "off" | "0" | "false" => Some(false),
        other => reject(violations, ConfigViolation::new(variable.name(), format!("`{other}` is unknown; write `on` or `off`")), None),
    }
}

fn clock_offset(environment: &Environment, violations: &mut Vec<ConfigViolation>) -> i64 {
    let Some(text) = environment.get(Variable::WERKRUF_CLOCK_OFFSET_S) else { return 0 };
    text.trim().parse().unwrap_or_else(|_| {
        let violation = ConfigViolation::new(Variable::WERKRUF_CLOCK_OFFSET_S.name(), "is not a whole number of seconds");
        reject(violations, violation, 0)
    })
}

/// Reads prompt files; their paths are relative to the config file.
fn assistants(document: &Document, violations: &mut Vec<ConfigViolation>) -> Vec<Assistant> {
    let folder = document.path.as_deref().and_then(Path::parent).unwrap_or_else(|| Path::new(""));
    let mut assistants = document.file.assistants.clone();
    for (at, assistant) in assistants.iter_mut().enumerate() {
        let Some(file) = &assistant.prompt_file else { continue };
        let place = format!("/assistants/{at}/prompt_file");
        if assistant.prompt.is_some() {
            violations.push(document.violation(&place, "prompt and prompt_file are both set; write one of them"));
            continue;
        }
        match std::fs::read_to_string(folder.join(file)) {
            Ok(prompt) => assistant.prompt = Some(prompt),
            Err(error) => violations.push(document.violation(&place, format!("cannot read {}: {error}", folder.join(file).display()))),
        }
    }
    assistants
}

fn check_lists(document: &Document, config: &Config, violations: &mut Vec<ConfigViolation>) {
    let mut names = HashSet::new();
    for (at, assistant) in config.assistants.iter().enumerate() {
        if assistant.name.trim().is_empty() {
            violations.push(document.violation(&format!("/assistants/{at}/name"), "is empty; an assistant is chosen by its name"));
        }
        if !names.insert((assistant.name.as_str(), assistant.tenant.as_deref())) {
            let message = format!("there is already an assistant named `{}`; rename one", assistant.name);
            violations.push(document.violation(&format!("/assistants/{at}/name"), message));
        }
        if let Some(profile) = assistant.safety_mode.as_ref().filter(|profile| !config.safety.contains_key(*profile)) {
            let message = format!("there is no safety profile named `{profile}`; [safety.{profile}] would define it");
            violations.push(document.violation(&format!("/assistants/{at}/safety_mode"), message));
        }
        for (nth, channel) in assistant.channels.iter().enumerate() {
            if !["web", "whatsapp", "openai"].contains(&channel.as_str()) {
                let place = format!("/assistants/{at}/channels/{nth}");
                violations.push(document.violation(&place, format!("`{channel}` is not a channel; write web, whatsapp or openai")));
            }
        }
    }
    for (at, origin) in config.cors_origins.iter().enumerate() {
        // A browser sends only scheme and host; anything else would never match.
        let tail = origin.split_once("://").map(|(_, tail)| tail);
        if origin != "*" && (address_fault(origin).is_some() || tail.is_some_and(|tail| tail.contains('/'))) {
            let message = format!("`{origin}` is not an origin; write scheme and host, such as https://www.example.org");
            let place = if config.environment.get(Variable::WERKRUF_CORS_ORIGINS).is_some() {
                Variable::WERKRUF_CORS_ORIGINS.name().to_owned()
            } else {
                format!("/cors_origins/{at}")
            };
            violations.push(document.violation(&place, message));
        }
    }
    check_proxies(document, config, violations);
}

fn check_proxies(document: &Document, config: &Config, violations: &mut Vec<ConfigViolation>) {
    let from_environment = config.environment.get(Variable::WERKRUF_TRUSTED_PROXIES).is_some();
    for (at, proxy) in config.trusted_proxies.iter().enumerate().filter(|(_, proxy)| network(proxy).is_none()) {
        let variable = Variable::WERKRUF_TRUSTED_PROXIES.name().to_owned();
        let place = if from_environment { variable } else { format!("/trusted_proxies/{at}") };
        violations.push(document.violation(&place, not_a_network(proxy)));
    }
}

fn egress(document: &Document, violations: &mut Vec<ConfigViolation>) -> Vec<IpNet> {
    let named = document.file.egress.allow.iter().enumerate();
    let read = |(at, text): (usize, &String)| {
        let found = network(text);
        if found.is_none() {
            violations.push(document.violation(&format!("/egress/allow/{at}"), not_a_network(text)));
        }
        found
    };
    named.filter_map(read).collect()
}

fn not_a_network(text: &str) -> String {
    format!("`{text}` is not an address or network; write one such as 10.0.0.0/8")
}

fn check_loopback(config: &Config, violations: &mut Vec<ConfigViolation>) {
    if config.listen.ip().is_loopback() {
        return;
    }
    let set = [(config.test_tools, Variable::WERKRUF_TEST_TOOLS), (config.clock_offset_s != 0, Variable::WERKRUF_CLOCK_OFFSET_S)];
    for (_, variable) in set.into_iter().filter(|(is_set, _)| *is_set) {
        let message = format!("is for tests and works on a loopback address only, not on {}; unset it", config.listen);
        violations.push(ConfigViolation::new(variable.name(), message));
    }
}
