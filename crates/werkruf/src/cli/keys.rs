//! `werkruf keys …`: API keys. A key is shown once, when it is made.

use clap::Subcommand;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use werkruf_contract::Clock;
use werkruf_store::Scopes;

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, ids, print};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make a key (for --tenant and --user)
    #[command(after_help = "Examples:\n  werkruf keys create --tenant demo --user 3 --scopes chat,read\n  \
                            werkruf keys create --scopes chat,act_as --name 'web backend' --expires 90d")]
    Create {
        /// What the key may do
        #[arg(long, value_delimiter = ',', required = true, value_parser = Scopes::NAMES)]
        scopes: Vec<String>,
        /// Purpose of the key
        #[arg(long)]
        name: Option<String>,
        /// When the key expires: a time such as 2027-01-31T00:00:00Z, or a span such as 12h or 90d
        #[arg(long, value_name = "WHEN")]
        expires: Option<String>,
        /// Networks from which the key may be used, such as 10.0.0.0/8
        #[arg(long, value_delimiter = ',', value_name = "NETWORK")]
        allow_ips: Vec<String>,
        /// Safety profile of every request with the key
        #[arg(long, value_name = "PROFILE")]
        safety_mode: Option<String>,
        /// Collection of every request with the key
        #[arg(long, value_name = "NAME")]
        collection: Option<String>,
    },
    /// The keys of a tenant
    #[command(after_help = "Examples:\n  werkruf keys list --tenant demo")]
    List,
    /// Replace a key; the old one works for a while longer
    #[command(after_help = "Examples:\n  werkruf keys rotate 0197f2c4-77aa\n  werkruf keys rotate 0197f2c4-77aa --overlap 60")]
    Rotate {
        /// Id of the key, or a unique beginning or end of it
        id: String,
        /// For how many seconds the old key still works
        #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
        overlap: u32,
    },
    /// Delete a key; it stops working at once
    #[command(visible_alias = "delete", after_help = "Examples:\n  werkruf keys revoke 0197f2c4-77aa")]
    Revoke {
        /// Id of the key, or a unique beginning or end of it
        id: String,
    },
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    let json = session.globals.json;
    let body = match &command {
        Command::Create { .. } => Some(new_key(session, &command)?),
        Command::List | Command::Rotate { .. } | Command::Revoke { .. } => None,
    };
    // Here --user names the owner of the key; the operator makes it.
    Backend::run(&session.without_user(), async |backend| execute(backend, command, body, json).await).await
}

fn new_key(session: &Session, command: &Command) -> Result<Value, CliError> {
    let Command::Create { scopes, name, expires, allow_ips, safety_mode, collection } = command else { return Ok(Value::Null) };
    let expires = expires.as_deref().map(|text| expiry(text, Clock::system(0).now())).transpose()?.map(|time| time.to_string());
    let mut body = json!({"scopes": scopes, "allow_ips": allow_ips});
    let fields = [
        ("tenant", &session.globals.tenant),
        ("user_id", &session.globals.user),
        ("expires_at", &expires),
        ("name", name),
        ("safety_mode", safety_mode),
        ("collection", collection),
    ];
    for (field, value) in fields {
        if let Some(value) = value {
            body[field] = value.as_str().into();
        }
    }
    Ok(body)
}

async fn execute(backend: &Backend, command: Command, body: Option<Value>, json: bool) -> Result<(), CliError> {
    match command {
        Command::Create { .. } => show_new(&backend.post("/api/keys", &body.unwrap_or_default()).await?, json)?,
        Command::List => {
            let response = backend.get("/api/keys?limit=1000").await?;
            if json { print::json(&response) } else { list(&response) }
        }
        Command::Rotate { id, overlap } => {
            let id = find(backend, &id).await?;
            let response = backend.post(&format!("/api/keys/{id}/rotate"), &json!({"overlap_s": overlap})).await?;
            show_new(&response, json)?;
            if !json {
                print::error_line(&format!("key {id} works until {}", print::cell(&response, "replaced_until")));
            }
        }
        Command::Revoke { id } => {
            let id = find(backend, &id).await?;
            backend.delete(&format!("/api/keys/{id}")).await?;
            if json { print::json(&json!({"deleted": id})) } else { print::line(&format!("deleted {id}")) }
        }
    }
    Ok(())
}

/// The id of the key of which this is the id or a part.
async fn find(backend: &Backend, typed: &str) -> Result<String, CliError> {
    let response = backend.get("/api/keys?limit=1000").await?;
    ids::among(print::rows(&response, "keys"), typed)
}

fn show_new(response: &Value, json: bool) -> Result<(), CliError> {
    let key = ids::text(response, "key")?;
    if json {
        print::json(response);
    } else {
        print::line(key);
        print::error_line(&format!("key {} is shown only once; store it", print::field(response, "id")));
    }
    Ok(())
}

fn list(response: &Value) {
    let scopes = |key: &Value| {
        let names: Vec<&str> = key["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        names.join(",")
    };
    let row = |key: &Value| {
        let field = |name| print::cell(key, name);
        vec![field("id"), field("user_id"), scopes(key), field("name"), field("expires_at"), field("last_used_at"), field("created_at")]
    };
    print::list(print::rows(response, "keys"), "No keys.", &["KEY", "USER", "SCOPES", "NAME", "EXPIRES", "LAST USED", "CREATED"], row);
}

/// A time, or a span from now.
fn expiry(text: &str, now: Timestamp) -> Result<Timestamp, CliError> {
    let invalid = || CliError::Usage(format!("`{text}` is no time; write one such as 2027-01-31T00:00:00Z, 12h or 90d"));
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let (count, hours) =
        text.strip_suffix('d').map(|days| (days, 24)).or_else(|| text.strip_suffix('h').map(|hours| (hours, 1))).ok_or_else(invalid)?;
    let hours = count.parse::<i64>().ok().filter(|count| *count > 0).and_then(|count| count.checked_mul(hours)).ok_or_else(invalid)?;
    let span = SignedDuration::try_from_hours(hours).ok_or_else(invalid)?;
    now.checked_add(span).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times_and_spans() {
        let now: Timestamp = "2026-11-15T00:00:00Z".parse().unwrap();
        assert_eq!(expiry("90d", now).unwrap().to_string(), "2027-02-13T00:00:00Z");
        assert_eq!(expiry("12h", now).unwrap().to_string(), "2026-11-15T12:00:00Z");
        assert_eq!(expiry("2027-01-31T00:00:00+01:00", now).unwrap().to_string(), "2027-01-30T23:00:00Z");
        for wrong in ["", "0d", "-1d", "soon", "9", "99999999999999999d"] {
            assert!(matches!(expiry(wrong, now), Err(CliError::Usage(_))), "{wrong}");
        }
    }
}
