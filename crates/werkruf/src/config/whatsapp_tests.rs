use secrecy::ExposeSecret;

use super::super::{Config, ConfigViolation, Environment, Flags};

fn load(text: &str, variables: &[(&str, &str)]) -> Result<Config, Vec<ConfigViolation>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("werkruf.toml");
    std::fs::write(&file, text).unwrap();
    let flags = Flags { config: Some(file), ..Flags::default() };
    Config::load(&flags, &Environment::of(variables.iter().copied()))
}

fn faults(text: &str, variables: &[(&str, &str)]) -> Vec<(String, Option<usize>)> {
    load(text, variables).unwrap_err().into_iter().map(|violation| (violation.path, violation.line)).collect()
}

const SECRETS: [(&str, &str); 3] = [("WHATSAPP_ACCESS_TOKEN", "t"), ("WHATSAPP_APP_SECRET", "s"), ("WHATSAPP_VERIFY_TOKEN", "v")];

#[test]
fn without_a_number_the_channel_is_off() {
    let whatsapp = load("", &[]).unwrap().whatsapp;
    assert!(whatsapp.numbers.is_empty());
    assert_eq!((whatsapp.base_url.as_str(), whatsapp.api_version.as_str()), ("https://graph.facebook.com", "v26.0"));
    assert_eq!(whatsapp.reconcile.as_secs(), 30);
    assert!(!whatsapp.lacks_a_number());
    let forgotten = load("", &SECRETS).unwrap().whatsapp;
    assert!(forgotten.numbers.is_empty() && forgotten.lacks_a_number());
}

#[test]
fn the_variables_name_one_number() {
    let more = [
        ("WHATSAPP_PHONE_NUMBER_ID", "55501"),
        ("WHATSAPP_TENANT", "acme"),
        ("WHATSAPP_BRANCH_ID", "2"),
        ("WHATSAPP_BASE_URL", "http://127.0.0.1:1/"),
        ("WHATSAPP_API_VERSION", "v30.1"),
        ("WHATSAPP_RECONCILE_S", "2"),
    ];
    let variables: Vec<(&str, &str)> = SECRETS.into_iter().chain(more).collect();
    let whatsapp = load("", &variables).unwrap().whatsapp;
    let [number] = whatsapp.numbers.as_slice() else { panic!("{whatsapp:?}") };
    assert_eq!((number.phone_number_id.as_str(), number.tenant.as_str(), number.branch_id), ("55501", "acme", Some(2)));
    assert_eq!((number.assistant.as_str(), number.access_token.expose_secret()), ("default", "t"));
    assert_eq!((whatsapp.base_url.as_str(), whatsapp.api_version.as_str()), ("http://127.0.0.1:1", "v30.1"));
    assert_eq!(whatsapp.reconcile.as_secs(), 2);
    assert!(!format!("{number:?}").contains("\"t\""), "no secret is printed");
}

#[test]
fn several_numbers_have_their_own_secrets() {
    let text = "[[whatsapp.numbers]]\nphone_number_id = '1'\ntenant = 'demo'\n[[whatsapp.numbers]]\nphone_number_id = '2'\ntenant = 'acme'\n\
        branch_id = 3\naccess_token_env = 'OTHER_TOKEN'\ntemplate = 'note'\n";
    let variables: Vec<(&str, &str)> = SECRETS.into_iter().chain([("OTHER_TOKEN", "o")]).collect();
    let config = load(text, &variables).unwrap();
    let tokens: Vec<&str> = config.whatsapp.numbers.iter().map(|number| number.access_token.expose_secret()).collect();
    assert_eq!(tokens, ["t", "o"]);
    assert!(config.whatsapp_secrets.contains(&"OTHER_TOKEN".to_owned()));
}

#[test]
fn everything_that_is_wrong_is_named() {
    let text = "[[whatsapp.numbers]]\nphone_number_id = '+49 30'\n[[whatsapp.numbers]]\nphone_number_id = '2'\ntenant = 'a'\n\
        [[whatsapp.numbers]]\nphone_number_id = '2'\ntenant = 'a'\n[whatsapp.keywords.fr]\nqui = 'get_user_info'\n";
    let at = |path: &str, line| (path.to_owned(), Some(line));
    let found = faults(text, &SECRETS);
    let expected = [
        at("/whatsapp/keywords/fr", 9),
        at("/whatsapp/numbers/0/phone_number_id", 2),
        at("/whatsapp/numbers/0/tenant", 1),
        at("/whatsapp/numbers/2/phone_number_id", 7),
    ];
    assert_eq!(found, expected);
    let missing = faults("[[whatsapp.numbers]]\nphone_number_id = '2'\ntenant = 'a'\napp_secret_env = 'MINE'\n", &SECRETS[..1]);
    assert_eq!(missing, [at("/whatsapp/numbers/0/app_secret_env", 4), at("/whatsapp/numbers/0/verify_token_env", 1)]);
    let named = |path: &str| (path.to_owned(), None);
    let one = ("WHATSAPP_PHONE_NUMBER_ID", "1");
    assert_eq!(faults("", &[one, SECRETS[0], SECRETS[1]]), [named("WHATSAPP_VERIFY_TOKEN")]);
    let wrong = [("WHATSAPP_API_VERSION", "26"), ("WHATSAPP_RECONCILE_S", "0"), ("WHATSAPP_BASE_URL", "graph")];
    assert_eq!(faults("", &wrong), [named("WHATSAPP_BASE_URL"), named("WHATSAPP_API_VERSION"), named("WHATSAPP_RECONCILE_S")]);
    let both: Vec<(&str, &str)> = SECRETS.into_iter().chain([one]).collect();
    assert_eq!(faults("[[whatsapp.numbers]]\nphone_number_id = '2'\ntenant = 'a'\n", &both), [named("WHATSAPP_PHONE_NUMBER_ID")]);
}
