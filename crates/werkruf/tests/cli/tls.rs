//! HTTPS of the real binary: commands that find the server, a certificate that changes, and `config check`.

use std::time::Duration;

use rcgen::{CertifiedKey, KeyPair};
use serde_json::{Value, json};

use crate::support::{Server, TestFolder};

/// Writes a new certificate. No name in it is that of the server.
fn write_certificate(folder: &TestFolder) {
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["werkruf.example".to_owned()]).unwrap();
    folder.file("cert.pem", &cert.pem()).file("key.pem", &signing_key.serialize_pem());
}

fn lock_file(folder: &TestFolder) -> Value {
    serde_json::from_slice(&std::fs::read(folder.path().join("data/werkruf.db.lock")).unwrap()).unwrap()
}

/// Waits until the lock file names another certificate.
fn wait_for_new_certificate(folder: &TestFolder, old: &Value) {
    let end = werkruf_contract::Deadline::after(Duration::from_secs(60));
    while lock_file(folder)["certificate"] == *old {
        assert!(!end.passed(), "the certificate was not replaced");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn serve(folder: &TestFolder) -> Server {
    let server = folder.serve(&["--config", "werkruf.toml"]);
    assert!(server.output.contains("listens on https://127.0.0.1:"), "{}", server.output);
    server
}

#[test]
fn commands_trust_the_certificate_of_the_running_server_and_no_other() {
    let folder = TestFolder::new();
    folder.file("werkruf.toml", "[tls]\ncert = 'cert.pem'\nkey = 'key.pem'\n");
    write_certificate(&folder);
    let server = serve(&folder);
    let tools = ["tools", "list", "--json"];
    folder.run(&tools).exits(0);

    let first = lock_file(&folder);
    write_certificate(&folder);
    server.signal("-HUP");
    wait_for_new_certificate(&folder, &first["certificate"]);
    folder.run(&tools).exits(0);

    // Without SIGHUP the change is found as well.
    let second = lock_file(&folder);
    write_certificate(&folder);
    wait_for_new_certificate(&folder, &second["certificate"]);
    folder.run(&tools).exits(0);

    // A server with another certificate is not the one of the lock file.
    let mut wrong = lock_file(&folder);
    wrong["certificate"] = first["certificate"].clone();
    std::fs::write(folder.path().join("data/werkruf.db.lock"), wrong.to_string()).unwrap();
    assert_eq!(folder.run(&tools).exits(1).error()["code"], "database_in_use");
}

#[test]
fn config_check_finds_files_that_do_not_belong_together() {
    let folder = TestFolder::new();
    folder.file("werkruf.toml", "[tls]\ncert = 'cert.pem'\nkey = 'key.pem'\n");
    let paths = |folder: &TestFolder| -> Vec<String> {
        let report = folder.run(&["config", "check", "--json"]).exits(1).json();
        report["violations"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths(&folder), ["/tls/cert"], "there are no files");
    write_certificate(&folder);
    assert_eq!(folder.run(&["config", "check", "--json"]).exits(0).json(), json!({"valid": true, "violations": []}));
    folder.file("key.pem", &KeyPair::generate().unwrap().serialize_pem());
    assert_eq!(paths(&folder), ["/tls/key"]);
    let refused = folder.run(&["serve", "--listen", "127.0.0.1:0", "--json"]).exits(1);
    assert_eq!(refused.error()["code"], "invalid_config");
    folder.file("werkruf.toml", "[tls]\ncert = 'cert.pem'\n");
    assert_eq!(paths(&folder), ["/tls/key"]);
}

#[test]
fn a_public_address_without_https_is_a_warning() {
    let warns = |variables: &[(&str, &str)]| {
        let mut folder = TestFolder::new().with("WERKRUF_ADMIN_KEY", "an-operator-key-of-a-test").with("WERKRUF_LOG_FORMAT", "json");
        for (name, value) in variables {
            folder = folder.with(name, value);
        }
        let mut server = folder.start(&["serve", "--listen", "0.0.0.0:0"]);
        let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
        // The warning is logged before the address is printed, and a server that ends by itself writes the whole log.
        std::io::BufRead::read_line(&mut output, &mut String::new()).unwrap();
        assert!(std::process::Command::new("kill").args(["-TERM", &server.id().to_string()]).status().unwrap().success());
        let log = String::from_utf8(server.wait_with_output().unwrap().stderr).unwrap();
        log.contains("plain_http")
    };
    assert!(warns(&[]));
    assert!(!warns(&[("WERKRUF_TRUSTED_PROXIES", "10.0.0.0/8")]));
    assert!(!warns(&[("WERKRUF_PUBLIC_URL", "https://chat.example.org")]));
    assert!(warns(&[("WERKRUF_PUBLIC_URL", "http://chat.example.org")]));
}
