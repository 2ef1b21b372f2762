//! Looks at a configuration that is valid: what is risky in it, and what is missing.

use super::{Report, Severity};
use crate::config::{Config, ModelConfig};
use crate::{provider, secret_key};

pub(crate) fn check_configuration(config: &Config, report: &mut Report) {
    let file = config.file.as_ref().map_or_else(|| "no config file".to_owned(), |file| file.display().to_string());
    report.checked(format!("configuration: {file}; model: {}", provider::describe(&config.model)));
    for warning in &config.warnings {
        report.find(
            Severity::Warning,
            "config",
            "",
            warning.to_string(),
            "Correct it, or remove it; docs/configuration.md lists all names.",
        );
    }
    check_exposure(config, report);
    check_model(config, report);
    if config.test_tools {
        let message = "The tools for tests are on: anybody with a key may make the server sleep or panic.";
        report.find(Severity::Warning, "config", "", message, "Remove WERKRUF_TEST_TOOLS.");
    }
    if config.clock_offset_s != 0 {
        let message = format!("The clock of the server is moved by {} seconds.", config.clock_offset_s);
        report.find(Severity::Warning, "config", "", message, "Remove WERKRUF_CLOCK_OFFSET_S; it is for tests.");
    }
}

/// What other machines can reach.
fn check_exposure(config: &Config, report: &mut Report) {
    let public = !config.listen.ip().is_loopback();
    let https = |url: &String| url.starts_with("https://");
    let has_proxy = !config.trusted_proxies.is_empty() || config.public_url.as_ref().is_some_and(https);
    if public && config.tls.is_none() && !has_proxy {
        let message = "The server speaks plain HTTP to other machines, so keys and data can be read on the way.";
        let advice = "Set [tls], or put a proxy with HTTPS in front and name it in trusted_proxies.";
        report.find(Severity::Warning, "config", "plain_http", message, advice);
    }
    if let Some(fault) = config.check_certificate() {
        let advice = "Correct [tls] cert and key; the server keeps the old certificate until then.";
        report.find(Severity::Error, "config", "certificate_invalid", format!("The certificate cannot be used: {fault}."), advice);
    }
    if (public || has_proxy) && config.public_url.is_none() {
        let message = "The public address of the server is not known, so links and /openapi.json name none.";
        report.find(Severity::Note, "config", "", message, "Set public_url (WERKRUF_PUBLIC_URL).");
    }
    if let Some(url) = config.public_url.as_ref().filter(|url| !https(url) && public) {
        let message = format!("The public address {url} is not HTTPS.");
        report.find(Severity::Warning, "config", "plain_http", message, "Serve it over HTTPS, and correct public_url.");
    }
    if public && !config.four_eyes {
        let message = "Whoever asks for a call may also approve it.";
        report.find(Severity::Warning, "config", "four_eyes", message, "Set [approvals] four_eyes = true.");
    }
    if let Some(address) = config.metrics_listen.filter(|address| !address.ip().is_loopback()) {
        let message = format!("Metrics are served to other machines without a key, on {address}.");
        let advice = "Use a loopback address in [metrics] listen, or let only the scraper reach this one.";
        report.find(Severity::Warning, "config", "open_metrics", message, advice);
    }
}

fn check_model(config: &Config, report: &mut Report) {
    match &config.model {
        ModelConfig::Offline => {
            let message = "No language model is connected; the offline planner answers.";
            report.find(Severity::Note, "model", "model_not_configured", message, "Set OPENAI_API_KEY or OPENAI_BASE_URL to connect one.");
        }
        ModelConfig::Server(server) => {
            if let Some(model) = server.model.as_deref().filter(|model| config.prices.find(model).is_none()) {
                let message = format!("The model {model} has no price, so its cost is unknown.");
                report.find(
                    Severity::Note,
                    "model",
                    "",
                    message,
                    "Add it to the file of WERKRUF_PRICES; `werkruf prices` shows the table.",
                );
            }
        }
    }
    if config.modules.knowledge && config.embedding.is_none() {
        let message = "There is no embedding model, so documents are found by their words only.";
        report.find(
            Severity::Note,
            "embedder",
            "",
            message,
            "Set OPENAI_EMBEDDING_MODEL, and OPENAI_EMBEDDING_BASE_URL for another server.",
        );
    }
}

/// The key of stored secrets. None is made.
pub(crate) fn check_secrets(config: &Config, report: &mut Report) {
    let exists = config.database.file().is_none_or(|file| file.exists());
    if !exists || !secret_key::stored_texts(config).is_empty() {
        return;
    }
    let (message, advice) = match config.database.file() {
        Some(file) => (
            format!("The key of stored secrets is missing beside {}.", file.display()),
            "Restore the file that ends in .key from a backup, or set WERKRUF_SECRET_KEY; otherwise stored tokens cannot be read, and the next start makes a new key.",
        ),
        None => (
            "WERKRUF_SECRET_KEY is not set, so tokens cannot be stored and the audit log is not signed.".to_owned(),
            "Give every server the same key; `openssl rand -base64 32` makes one.",
        ),
    };
    report.find(Severity::Warning, "config", "secret_key_required", message, advice);
}
