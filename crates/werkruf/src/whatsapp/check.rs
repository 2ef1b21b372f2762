//! `whatsapp check`: whether everything between this server and Meta is in place, and what to do next.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::Client;
use ring::hmac::{HMAC_SHA256, Key, sign};
use secrecy::ExposeSecret;
use serde::Serialize;
use serde_json::Value;
use werkruf_llm::cause;

use super::settings::{Number, WhatsAppSettings};

const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RESPONSE: usize = 64 * 1024;
const PATH: &str = "/webhooks/whatsapp";

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// `configuration`, `number 55501`, `app secret 55501`, `subscription 55501`, `public address`.
    pub(crate) what: String,
    /// `None`: it cannot be seen from here.
    pub(crate) ok: Option<bool>,
    pub(crate) message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

impl Finding {
    fn good(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self { what: what.into(), ok: Some(true), message: message.into(), next: None }
    }

    fn bad(what: impl Into<String>, message: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what: what.into(), ok: Some(false), message: message.into(), next: Some(next.into()) }
    }

    fn unseen(what: impl Into<String>, message: impl Into<String>, next: impl Into<String>) -> Self {
        Self { ok: None, ..Self::bad(what, message, next) }
    }
}

/// Looks at everything, in the order in which it is set up. `challenge` is any text.
pub(crate) async fn check(settings: &WhatsAppSettings, public_url: Option<&str>, client: &Client, challenge: &str) -> Vec<Finding> {
    if settings.numbers.is_empty() {
        let next = "set WHATSAPP_PHONE_NUMBER_ID, WHATSAPP_ACCESS_TOKEN, WHATSAPP_APP_SECRET and WHATSAPP_VERIFY_TOKEN, or write [[whatsapp.numbers]] (docs/whatsapp.md, step 2)";
        return vec![Finding::bad("configuration", "no number is configured", next)];
    }
    let mut findings = Vec::new();
    for number in &settings.numbers {
        let found = check_number(settings, number, client).await;
        let readable = found.ok == Some(true);
        findings.push(found);
        if readable {
            findings.push(check_app_secret(settings, number, client).await);
            findings.push(check_subscription(settings, number, public_url, client).await);
        }
    }
    findings.push(check_public_address(settings, public_url, client, challenge).await);
    findings
}

async fn check_number(settings: &WhatsAppSettings, number: &Number, client: &Client) -> Finding {
    let what = format!("number {}", number.phone_number_id);
    let (status, body) = match ask(settings, number, &[("fields", "display_phone_number,verified_name,quality_rating")], client).await {
        Ok(answer) => answer,
        Err(why) => {
            let next = format!("let this machine reach {}", settings.base_url);
            return Finding::bad(what, format!("{} does not answer: {why}", settings.base_url), next);
        }
    };
    let text = |field: &str| body[field].as_str().unwrap_or("unknown");
    if status == 200 && body["display_phone_number"].is_string() {
        let message = format!("{} ({}), quality {}", text("display_phone_number"), text("verified_name"), text("quality_rating"));
        return Finding::good(what, message);
    }
    let code = body.pointer("/error/code").and_then(Value::as_i64).unwrap_or_default();
    let message = format!("Meta refuses the token or the number ({status}, error {code})");
    let next = match code {
        190 => {
            "the access token is not valid or has expired: make a permanent token of a system user and set it (docs/whatsapp.md, step 1)"
        }
        10 | 200 => "the access token lacks the permission whatsapp_business_messaging: give it to the system user and make a new token",
        _ => "compare phone_number_id with API setup in Meta's app, and give the system user of the token access to that account",
    };
    Finding::bad(what, message, next)
}

/// Whether the app secret belongs to the app of the token: Meta compares a signature of the token with it.
async fn check_app_secret(settings: &WhatsAppSettings, number: &Number, client: &Client) -> Finding {
    let what = format!("app secret {}", number.phone_number_id);
    let key = Key::new(HMAC_SHA256, number.app_secret.expose_secret().as_bytes());
    let proof = werkruf_contract::hex(sign(&key, number.access_token.expose_secret().as_bytes()).as_ref());
    let compare = "compare it with App settings, Basic, in Meta's app: with a wrong one every message is refused with 401";
    match ask(settings, number, &[("fields", "id"), ("appsecret_proof", &proof)], client).await {
        Ok((200, _)) => Finding::good(what, "it is the one of the token's app"),
        Ok((_, body)) if body.pointer("/error/message").and_then(Value::as_str).is_some_and(|text| text.contains("appsecret_proof")) => {
            Finding::bad(what, "it is not the one of the token's app", compare)
        }
        Ok((status, _)) => Finding::unseen(what, format!("Meta did not compare it ({status})"), compare),
        Err(why) => Finding::unseen(what, format!("Meta was not asked: {why}"), compare),
    }
}

/// Where the app's webhook points. Not every token may read it.
async fn check_subscription(settings: &WhatsAppSettings, number: &Number, public_url: Option<&str>, client: &Client) -> Finding {
    let what = format!("subscription {}", number.phone_number_id);
    let register = "in Meta's app, under WhatsApp, Configuration, register the callback and subscribe to the field messages (docs/whatsapp.md, step 4)";
    let (status, answer) = match ask(settings, number, &[("fields", "webhook_configuration")], client).await {
        Ok(answer) => answer,
        Err(why) => return Finding::unseen(what, format!("Meta was not asked where it sends messages: {why}"), "run this command again"),
    };
    let configuration = &answer["webhook_configuration"];
    let address = ["phone_number", "whatsapp_business_account", "application"].iter().find_map(|level| configuration[*level].as_str());
    match (address, public_url) {
        (Some(address), Some(own)) if address.trim_end_matches('/') == format!("{own}{PATH}") => {
            Finding::good(what, format!("Meta calls {address}"))
        }
        (Some(address), Some(_)) => {
            Finding::bad(what, format!("Meta calls {address}, which is not this server's public address"), register)
        }
        (Some(address), None) => {
            let message = format!("Meta calls {address}; this server's public address is not set, so the two were not compared");
            Finding::unseen(what, message, register)
        }
        (None, _) if status == 200 => Finding::unseen(what, "Meta does not say where it sends messages", register),
        (None, _) => Finding::unseen(what, format!("this token may not read where Meta sends messages ({status})"), register),
    }
}

async fn check_public_address(settings: &WhatsAppSettings, public_url: Option<&str>, client: &Client, challenge: &str) -> Finding {
    let what = "public address";
    let Some(public_url) = public_url else {
        let next = "set WERKRUF_PUBLIC_URL to the https:// address at which Meta reaches this server (docs/whatsapp.md, step 3)";
        return Finding::bad(what, "it is not set", next);
    };
    let address = format!("{public_url}{PATH}");
    let wrong = |number: &Number| format!("number {} has another verify token there", number.phone_number_id);
    for number in &settings.numbers {
        let query = [("hub.mode", "subscribe"), ("hub.challenge", challenge), ("hub.verify_token", number.verify_token.expose_secret())];
        let (status, body) = match get(client.get(&address).query(&query)).await {
            Ok(answer) => answer,
            Err(why) => {
                let next = "start `werkruf serve`, and let the proxy pass /webhooks/whatsapp on to it";
                return Finding::bad(what, format!("{address} does not answer: {why}"), next);
            }
        };
        if status == 403 {
            return Finding::bad(what, wrong(number), "give the server the same configuration as this command, and restart it");
        }
        if status != 200 || body != challenge.as_bytes() {
            let message = format!("{address} answers {status}, but not with the challenge");
            return Finding::bad(what, message, "let the proxy pass /webhooks/whatsapp on to this server unchanged, without a redirect");
        }
    }
    if public_url.starts_with("https://") {
        return Finding::good(what, format!("{address} answers Meta's handshake"));
    }
    let found = Finding::bad(what, format!("{address} answers, but Meta needs https://"), "put a proxy with HTTPS in front, or set [tls]");
    // A trial on this machine, without Meta.
    let is_loopback = reqwest::Url::parse(public_url).ok().is_some_and(|url| is_loopback(url.host_str().unwrap_or_default()));
    if is_loopback { Finding { ok: None, ..found } } else { found }
}

/// What Meta answers to a query about the number.
async fn ask(settings: &WhatsAppSettings, number: &Number, query: &[(&str, &str)], client: &Client) -> Result<(u16, Value), String> {
    let WhatsAppSettings { base_url, api_version, .. } = settings;
    let url = format!("{base_url}/{api_version}/{}", number.phone_number_id);
    let request = client.get(url).query(query).bearer_auth(number.access_token.expose_secret());
    let (status, body) = get(request).await?;
    Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.trim_matches(['[', ']']).parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

async fn get(request: reqwest::RequestBuilder) -> Result<(u16, Vec<u8>), String> {
    let mut response = request.timeout(TIMEOUT).send().await.map_err(|error| cause(&error))?;
    let (status, mut body) = (response.status().as_u16(), Vec::new());
    while let Some(chunk) = response.chunk().await.map_err(|error| cause(&error))? {
        if body.len() + chunk.len() > MAX_RESPONSE {
            break;
        }
        body.extend_from_slice(&chunk);
    }
    Ok((status, body))
}
