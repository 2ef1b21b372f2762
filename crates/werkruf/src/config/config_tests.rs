use std::path::PathBuf;

use secrecy::ExposeSecret;

use super::*;

/// A folder with a config file that has this text.
fn folder(text: &str) -> (tempfile::TempDir, Flags) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("werkruf.toml");
    std::fs::write(&file, text).unwrap();
    let flags = Flags { config: Some(file), ..Flags::default() };
    (folder, flags)
}

fn load(text: &str, variables: &[(&str, &str)]) -> Result<Config, Vec<ConfigViolation>> {
    let (_folder, flags) = folder(text);
    Config::load(&flags, &Environment::of(variables.iter().copied()))
}

fn faults(text: &str, variables: &[(&str, &str)]) -> Vec<(String, Option<usize>)> {
    load(text, variables).unwrap_err().into_iter().map(|violation| (violation.path, violation.line)).collect()
}

fn at(path: &str, line: usize) -> (String, Option<usize>) {
    (path.to_owned(), Some(line))
}

fn named(path: &str) -> (String, Option<usize>) {
    (path.to_owned(), None)
}

#[test]
fn the_defaults_are_a_valid_configuration() {
    let config = load("", &[]).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.database.to_string(), "data/werkruf.db");
    assert_eq!(config.lock_path(), Some(PathBuf::from("data/werkruf.db.lock")));
    assert!(matches!(config.model, ModelConfig::Offline));
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.auth.unknown_users, UnknownUsers::Refuse);
}

#[test]
fn flags_win_over_variables_over_the_file() {
    let text = "listen = '127.0.0.1:1'\ndatabase = 'sqlite:file.db'\n[limits]\nsteps = 3\nparallel = 2";
    let variables = [("WERKRUF_LISTEN", "127.0.0.1:2"), ("WERKRUF_LIMIT_STEPS", "4"), ("WERKRUF_DATABASE", "variable.db")];
    let (_folder, mut flags) = folder(text);
    assert_eq!(Config::load(&flags, &Environment::default()).unwrap().listen.port(), 1);
    let environment = Environment::of(variables);
    let config = Config::load(&flags, &environment).unwrap();
    assert_eq!((config.listen.port(), config.limits.steps, config.limits.parallel), (2, 4, 2));
    assert_eq!(config.database.to_string(), "variable.db");
    flags.listen = Some("localhost:3".to_owned());
    flags.database = Some("sqlite://flag.db".to_owned());
    let config = Config::load(&flags, &environment).unwrap();
    assert_eq!((config.listen.port(), config.database.to_string().as_str()), (3, "flag.db"));
}

#[test]
fn every_fault_of_the_file_is_found_at_once_with_its_line() {
    let text = "listen = 7\nport = 80\n[limits]\nsteps = 0\nsleeps = 1\nqueue = 'long'\n\n[auth]\nunknown_users = 'maybe'\n\n\
                [[assistants]]\nname = 'a'\ncolour = 'red'\n\n[[assistants]]\nprompt = 'x'\n";
    let mut found = faults(text, &[]);
    found.sort_by_key(|(_, line)| *line);
    let expected = [
        at("/listen", 1),
        at("/port", 2),
        at("/limits/steps", 4),
        at("/limits/sleeps", 5),
        at("/limits/queue", 6),
        at("/auth/unknown_users", 9),
        at("/assistants/0/colour", 13),
        at("/assistants/1", 15),
    ];
    assert_eq!(found, expected);
}

#[test]
fn broken_toml_has_a_line() {
    assert_eq!(faults("listen = '127.0.0.1:1'\n[limits\nsteps = 1", &[])[0].1, Some(2));
}

#[test]
fn a_missing_file_is_a_fault_only_when_named() {
    let flags = Flags { config: Some(PathBuf::from("/nowhere/werkruf.toml")), ..Flags::default() };
    assert_eq!(Config::load(&flags, &Environment::default()).unwrap_err()[0].path, "--config");
}

#[test]
fn bad_variables_are_named() {
    let variables = [
        ("WERKRUF_ADMIN_KEY", "short"),
        ("WERKRUF_MODEL", "gpt-5"),
        ("OPENAI_API", "soap"),
        ("OPENAI_BASE_URL", "127.0.0.1:11434"),
        ("OPENAI_MAX_OUTPUT_TOKENS", "0"),
        ("WERKRUF_LISTEN", "here"),
        ("WERKRUF_DATABASE", "mysql://localhost/werkruf"),
        ("WERKRUF_LOG_FORMAT", "xml"),
        ("WERKRUF_CORS_ORIGINS", "https://a.example/path"),
        ("WERKRUF_TRUSTED_PROXIES", "10.0.0.0/64"),
        ("WERKRUF_SAMPLE_DATA", "perhaps"),
        ("WERKRUF_CLOCK_OFFSET_S", "an hour"),
        ("WERKRUF_PUBLIC_URL", "chat.example.org"),
    ];
    let mut found = faults("", &variables);
    let mut expected: Vec<_> = variables.iter().map(|(name, _)| named(name)).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn the_admin_key_is_taken_verbatim_and_never_printed() {
    let config = load("", &[("WERKRUF_ADMIN_KEY", " sixteen-letters ")]).unwrap();
    assert_eq!(config.admin_key.as_ref().unwrap().expose_secret(), " sixteen-letters ");
    assert!(!format!("{config:?}").contains("sixteen-letters"));
}

#[test]
fn the_model_follows_the_variables() {
    let chat = |variables: &[(&str, &str)]| match load("", variables).unwrap().model {
        ModelConfig::Server(server) => server,
        ModelConfig::Offline => panic!("offline"),
    };
    let openai = chat(&[("OPENAI_API_KEY", "sk-1")]);
    assert_eq!((openai.base_url.as_str(), openai.model.as_deref()), ("https://api.openai.com/v1", Some("gpt-5")));
    assert!(openai.is_paid() && openai.max_output_tokens == 16_384);
    assert_eq!(openai.api, ModelApi::Responses);
    let own = chat(&[("OPENAI_BASE_URL", "http://127.0.0.1:11434/v1/"), ("OPENAI_API_KEY", "x")]);
    assert_eq!((own.base_url.as_str(), own.model.as_deref(), own.is_paid()), ("http://127.0.0.1:11434/v1", None, false));
    assert_eq!((own.api, own.record), (ModelApi::Chat, None));
    let chosen = chat(&[("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"), ("OPENAI_API", "responses"), ("WERKRUF_RECORD_WIRE", "wire")]);
    assert_eq!((chosen.api, chosen.record), (ModelApi::Responses, Some(PathBuf::from("wire"))));
    assert_eq!(chat(&[("OPENAI_API_KEY", "sk-1"), ("OPENAI_API", "chat")]).api, ModelApi::Chat);
    let forced = load("", &[("OPENAI_API_KEY", "sk-1"), ("WERKRUF_MODEL", "offline")]).unwrap();
    assert!(matches!(forced.model, ModelConfig::Offline));
}

#[test]
fn headers_for_the_model_come_from_the_file_with_their_secrets_from_the_environment() {
    let text = "[model]\nbase_url = 'http://127.0.0.1:1/v1'\nheaders = { X-Key = 'Key ${TEAM_KEY}', X-Team = 'a' }\n";
    let config = load(text, &[("TEAM_KEY", "top-secret")]).unwrap();
    let ModelConfig::Server(server) = &config.model else { panic!("offline") };
    let headers: Vec<_> = server.headers.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
    assert_eq!(headers, [("X-Key", "Key top-secret"), ("X-Team", "a")]);
    assert!(!format!("{config:?}").contains("top-secret"));
    assert_eq!(faults(text, &[]), [at("/model/headers/X-Key", 3)]);
}

#[test]
fn test_settings_need_a_loopback_address() {
    let variables = [("WERKRUF_LISTEN", "0.0.0.0:8080"), ("WERKRUF_TEST_TOOLS", "1"), ("WERKRUF_CLOCK_OFFSET_S", "60")];
    assert_eq!(faults("", &variables), [named("WERKRUF_TEST_TOOLS"), named("WERKRUF_CLOCK_OFFSET_S")]);
    let config = load("", &variables[1..]).unwrap();
    assert!(config.test_tools && config.clock_offset_s == 60);
}

#[test]
fn prompt_files_are_relative_to_the_config_file() {
    let (folder, flags) = folder("[[assistants]]\nname = 'a'\nprompt_file = 'a.md'\n");
    assert_eq!(Config::load(&flags, &Environment::default()).unwrap_err()[0].path, "/assistants/0/prompt_file");
    std::fs::write(folder.path().join("a.md"), "Be brief.").unwrap();
    let config = Config::load(&flags, &Environment::default()).unwrap();
    assert_eq!(config.assistants[0].prompt.as_deref(), Some("Be brief."));
}

#[test]
fn the_template_is_valid_as_written_and_uncommented() {
    let compiled_in = ModulesOn { flights: cfg!(feature = "flights"), ..ModulesOn::ALL };
    assert_eq!(load(&template(), &[]).unwrap().modules, compiled_in);
    // After the introduction every commented line must be a valid setting.
    let settings: String = template()
        .lines()
        .skip_while(|line| !line.is_empty())
        .map(|line| line.strip_prefix("# ").unwrap_or(line))
        .map(|line| {
            line.strip_prefix("# ").filter(|inner| !["prompt_file", "prices"].iter().any(|file| inner.starts_with(file))).unwrap_or(line)
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let secrets = ["WHATSAPP_ACCESS_TOKEN", "WHATSAPP_APP_SECRET", "WHATSAPP_VERIFY_TOKEN", "CRM_WEBHOOK_SECRET"];
    let secrets = secrets.map(|name| (name, "0123456789abcdef"));
    let config = load(&settings, &secrets).unwrap();
    assert_eq!((config.limits, config.tools.len(), config.assistants.len(), config.webhooks.len()), (Limits::default(), 1, 1, 1));
}

#[test]
fn issuers_of_tokens_come_from_the_environment_and_the_file() {
    let none = load("", &[]).unwrap();
    assert!(none.tokens.is_empty());
    let supabase = load("", &[("SUPABASE_URL", "https://abc.supabase.co/")]).unwrap();
    let [issuer] = &supabase.tokens[..] else { panic!("one issuer") };
    assert_eq!(issuer.issuer.as_deref(), Some("https://abc.supabase.co/auth/v1"));
    assert_eq!(issuer.jwks_url.as_deref(), Some("https://abc.supabase.co/auth/v1/.well-known/jwks.json"));
    let secret = load("", &[("SUPABASE_JWT_SECRET", "sixteen-characters")]).unwrap();
    assert!(secret.tokens[0].issuer.is_none() && secret.tokens[0].jwks_url.is_none() && secret.tokens[0].secret.is_some());
    let other = load("[auth.jwt]\nissuer = 'https://id.example/'\naudience = 'werkruf'\nroles_claim = ''\n", &[]).unwrap();
    assert_eq!(other.tokens[0].jwks_url.as_deref(), Some("https://id.example/.well-known/jwks.json"));
    assert_eq!((other.tokens[0].tenant_claims[0].as_str(), other.tokens[0].roles_claims.len()), ("tenant_id", 0));
    let project =
        "[auth.jwt]\nissuer = 'https://abc.supabase.co/auth/v1'\naudience = 'authenticated'\njwks_url = 'http://kong:8000/keys'\n";
    for variable in [("SUPABASE_URL", "https://abc.supabase.co"), ("SUPABASE_JWT_SECRET", "sixteen-characters")] {
        let config = load(project, &[variable]).unwrap();
        let [issuer] = &config.tokens[..] else { panic!("one project") };
        assert_eq!((issuer.kind, issuer.jwks_url.as_deref()), (IssuerKind::Supabase, Some("http://kong:8000/keys")));
        assert_eq!(issuer.tenant_claims[0], "app_metadata.tenant_id");
    }
    let both = load("[auth.jwt]\nissuer = 'https://id.example'\naudience = 'a'\n", &[("SUPABASE_URL", "https://abc.supabase.co")]).unwrap();
    assert_eq!(both.tokens.len(), 2);
}

#[test]
fn an_issuer_that_cannot_be_trusted_is_a_fault() {
    let faults =
        |text: &str, variables: &[(&str, &str)]| load(text, variables).unwrap_err().into_iter().map(|fault| fault.path).collect::<Vec<_>>();
    assert_eq!(
        faults("", &[("SUPABASE_URL", "abc.supabase.co"), ("SUPABASE_JWT_SECRET", "short")]),
        ["SUPABASE_URL", "SUPABASE_JWT_SECRET"]
    );
    assert_eq!(faults("[auth.jwt]\n", &[]), ["/auth/jwt/issuer", "/auth/jwt/audience"]);
    let own = "[auth.jwt]\nissuer = 'https://id.example'\naudience = 'a'\ntenant_claim = 'user_metadata.tenant'\njwks_url = 'keys'\n";
    assert_eq!(faults(own, &[]), ["/auth/jwt/jwks_url", "/auth/jwt/tenant_claim"]);
}

#[test]
fn the_operators_prices_override_the_built_in_ones() {
    let tokens = werkruf_llm::TokenUsage { input_tokens: 2, output_tokens: 1, ..werkruf_llm::TokenUsage::default() };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prices.json");
    std::fs::write(&file, r#"{"models": [{"model": "ours", "usd_per_million": {"input": "1", "output": "3"}}]}"#).unwrap();
    let config = load("", &[("WERKRUF_PRICES", file.to_str().unwrap())]).unwrap();
    assert_eq!(config.prices.cost("ours", tokens), Some(5000));
    assert!(config.prices.cost("gpt-5", tokens).is_some());
    assert_eq!(load("", &[]).unwrap().prices.cost("ours", tokens), None);
    std::fs::write(&file, r#"{"models": [{"model": "ours"}]}"#).unwrap();
    let faults = load("", &[("WERKRUF_PRICES", file.to_str().unwrap())]).unwrap_err();
    assert_eq!(faults[0].path, "WERKRUF_PRICES");
    assert!(faults[0].message.contains("/models/0"), "{}", faults[0].message);
    assert_eq!(load("prices = 'nowhere.json'\n", &[]).unwrap_err()[0].path, "/prices");
}

#[test]
fn retention_is_in_days_and_not_shorter_than_reuse() {
    let text = "[retention]\nmessages_days = 30\ncalls_days = 1";
    let expected = RetentionConfig { messages_days: Some(30), calls_days: Some(1), ..RetentionConfig::default() };
    assert_eq!(load(text, &[]).unwrap().retention, expected);
    assert_eq!(load("", &[]).unwrap().retention, RetentionConfig::default(), "nothing is deleted by default");
    let text = "[retention]\nmessages_days = 0\nevents_days = -1\ncalls_days = 36501\nusage_days = 'a year'\nturns_days = 1";
    let found = load(text, &[]).unwrap_err();
    let mut places: Vec<_> = found.iter().map(|violation| (violation.path.as_str(), violation.line)).collect();
    places.sort_unstable();
    let expected = [("calls", 4), ("events", 3), ("messages", 2), ("turns", 6), ("usage", 5)];
    assert_eq!(
        places,
        expected
            .map(|(kind, line)| (format!("/retention/{kind}_days"), Some(line)))
            .iter()
            .map(|(path, line)| (path.as_str(), *line))
            .collect::<Vec<_>>()
    );
    let negative = found.iter().find(|violation| violation.path == "/retention/events_days").unwrap();
    assert_eq!(negative.message, "must be 1 to 36500 days; leave it out to keep events for good");

    let tool = |reuse_s: u64| {
        format!(
            "[retention]\ncalls_days = 2\n[[tools]]\nname = 'book'\ndescription = 'Books.'\nkind = 'http'\nurl = 'http://127.0.0.1:1/'\n\
             effect = 'once'\npermission = 'none'\nreuse_s = {reuse_s}\nparameters = '{{\"type\": \"object\"}}'"
        )
    };
    load(&tool(172_800), &[]).unwrap();
    assert_eq!(faults(&tool(172_801), &[]), [at("/retention/calls_days", 2)]);
}

#[test]
fn whoever_asked_may_approve_only_in_a_demo_or_where_the_file_says_so() {
    let without_file = |listen: &str| {
        let flags = Flags { listen: Some(listen.to_owned()), ..Flags::default() };
        Config::load(&flags, &Environment::default()).unwrap().four_eyes
    };
    assert_eq!((without_file("127.0.0.1:0"), without_file("0.0.0.0:0")), (false, true));
    assert!(load("", &[]).unwrap().four_eyes);
    assert!(!load("[approvals]\nfour_eyes = false", &[]).unwrap().four_eyes);
}

#[test]
fn an_assistant_pins_a_profile_that_exists() {
    let text = "[safety.strict]\n[[assistants]]\nname = 'a'\nsafety_mode = 'strict'\ncollections = ['hr']\n";
    let assistants = load(text, &[]).unwrap().assistants;
    assert_eq!(
        (assistants[0].safety_mode.as_deref(), assistants[0].collections.as_slice()),
        (Some("strict"), ["hr".to_owned()].as_slice())
    );
    let text = "[safety.strict]\n[[assistants]]\nname = 'a'\nsafety_mode = 'strickt'\n";
    assert_eq!(faults(text, &[]), [at("/assistants/0/safety_mode", 4)]);
}
