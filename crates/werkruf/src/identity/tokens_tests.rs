//! Tests with generated tokens and keys, and with recorded ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::sync::watch;
use werkruf_contract::Clock;
use werkruf_llm::{HttpLimits, http_client};
use werkruf_store::TokenRoles;

use super::Tokens;
use crate::config::{IssuerKind, TokenIssuer, UnknownRoles};
use crate::identity::jwt::TokenFault;

const SECRET: &str = "a-secret-of-the-tests-with-enough-characters";
const SUBJECT: &str = "0b6e4f2c-58d1-4c1e-9d1f-3f6a5b7c8d9e";
/// The public part of a discarded key. The key signed the token below, which is valid until 2100.
const RSA_MODULUS: &str = "oOZDLeptJIwU7pdsDTJia0nAESKPpfvIgQ-28yFxwGR8fyzTOcZ7YoLK_BGxgk5w3kletEwwix7ACJjbfS9CeVNPCm2uXzTGI5pkg8VPCwnxzu1gfK8py0TYVoi7B_RpgGVx06aw9LfDCPONR3W0F3s3iN4r2YRtgcOAMVIaG7LdJfothm0ioT0xt_FGmLQexNbtXTNNgqYiFydeWywmGxIZ7vG-4ufTJlln5I_fTcMCGtNeR4XJtDv_b402Hur6zdHvm8hpcu5G_x2U-fTs01aiQ5wAOgy7UwuGK-559WUAXLXRppMeNHgd1RX3rbeXq0Vy-cRDNBTB_g4PugPgJw";
const RSA_TOKEN: &str = concat!(
    "eyJhbGciOiJSUzI1NiIsImtpZCI6InIxIn0.eyJpc3MiOiJodHRwczovL3Byb2plY3QuZXhhbXBsZS9hdXRoL3YxIiwiYXVkIjoiYXV0aGVudGljYXRlZCIsInN1YiI6IjBiNmU0ZjJjLTU4ZDEtNGMxZS05ZDFmLTNmNmE1YjdjOGQ5ZSIsInJvbGUiOiJhdXRoZW50aWNhdGVkIiwiZXhwIjo0MTAyNDQ0ODAwfQ.",
    "CT2cfvSatCcEirZ8VBzSwqKpNUOeDYLIFfCl2Lnz-uml5HvEq5cfg0j8uOuwnDr7AO01Iy9KNuAhdilvL7qftyIqS53AV3X0-7mJhZEsLQvfw8QJUWlzkYYKnshsB8ZG-HEmFjMCicR8zAn-a0Y-FK7u_szUiTEj0ZnUaCTJJ-QYXhOqfKuNHc72McgIjogViL21sCFhiG1EcQbMx_TyZqaI6kyd1Py0DeDlrkNFSgBg8eImSlGgVnvGgNYV4VONCisMl81IRminRVtrtu9y6z_dbyYYRwbq5OZzzPUPRvLBtfzwxQbgJdTV0zqb6ey18ZMb79uaf_pDOtPfFWc_XQ"
);
const PROJECT: &str = "https://project.example/auth/v1";

fn part(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn claims() -> Value {
    json!({
        "iss": PROJECT, "aud": "authenticated", "sub": SUBJECT, "role": "authenticated",
        "exp": Clock::system(0).now().as_second() + 3600, "is_anonymous": false,
        "app_metadata": {"tenant_id": "acme", "role": "editor"},
        "user_metadata": {"tenant_id": "evil", "role": "admin", "roles": ["admin"]}
    })
}

fn with(path: &str, value: Value) -> Value {
    let mut claims = claims();
    match path.split_once('/') {
        Some((outer, inner)) => claims[outer][inner] = value,
        None if value.is_null() => drop(claims.as_object_mut().unwrap().remove(path)),
        None => claims[path] = value,
    }
    claims
}

fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", part(header.to_string()), part(claims.to_string()))
}

fn hs256(header: &Value, claims: &Value, secret: &[u8]) -> String {
    let text = unsigned(header, claims);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
    format!("{text}.{}", part(tag))
}

fn secret_token(claims: &Value) -> String {
    hs256(&json!({"alg": "HS256", "typ": "JWT"}), claims, SECRET.as_bytes())
}

/// A signing key of a test issuer.
struct Curve {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Curve {
    fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        Self { id, pair }
    }

    fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "key_ops": ["verify"], "kid": self.id,
            "x": part(&point[1..33]), "y": part(&point[33..])})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let text = unsigned(header, claims);
        let tag = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", part(tag))
    }

    fn token(&self) -> String {
        self.sign(&json!({"alg": "ES256", "kid": self.id}), &claims())
    }
}

fn rsa_jwk() -> Value {
    json!({"kty": "RSA", "kid": "r1", "n": RSA_MODULUS, "e": "AQAB"})
}

/// The RSA token with another header. Its signature is valid only for the original header.
fn rsa_token(algorithm: &str) -> String {
    let (_, rest) = RSA_TOKEN.split_once('.').unwrap();
    format!("{}.{rest}", part(format!(r#"{{"alg":"{algorithm}","kid":"r1"}}"#)))
}

/// A test server that publishes keys and counts the fetches.
struct Issuer {
    url: String,
    published: watch::Sender<Option<Value>>,
    fetches: Arc<AtomicUsize>,
    _tasks: tokio_util::task::TaskTracker,
}

impl Issuer {
    async fn start(keys: Value) -> Self {
        let (published, receiver) = watch::channel(Some(keys));
        let fetches = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&fetches);
        let answer = move || {
            count.fetch_add(1, Ordering::SeqCst);
            let now = receiver.borrow().clone();
            async move {
                // Lets a second request arrive while the first is in flight.
                tokio::task::yield_now().await;
                now.map(|keys| json!({"keys": keys}).to_string()).ok_or(http::StatusCode::BAD_GATEWAY)
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks", listener.local_addr().unwrap());
        let tasks = tokio_util::task::TaskTracker::new();
        tasks.spawn(async move { axum::serve(listener, Router::new().route("/jwks", get(answer))).await });
        Self { url, published, fetches, _tasks: tasks }
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

fn supabase(secret: Option<&str>, jwks_url: Option<&str>) -> TokenIssuer {
    TokenIssuer {
        kind: IssuerKind::Supabase,
        issuer: Some(PROJECT.to_owned()),
        audience: "authenticated".to_owned(),
        secret: secret.map(SecretString::from),
        jwks_url: jwks_url.map(str::to_owned),
        tenant_claims: vec!["app_metadata.tenant_id".to_owned()],
        roles_claims: vec!["app_metadata.roles".to_owned(), "app_metadata.role".to_owned()],
        tenant: "demo".to_owned(),
        unknown_roles: UnknownRoles::Deny,
    }
}

fn tokens_of(issuers: &[TokenIssuer], clock: &Clock) -> Tokens {
    Tokens::new(issuers, "guest", &http_client(&HttpLimits::default()).unwrap(), clock)
}

fn tokens_with_secret() -> Tokens {
    tokens_of(&[supabase(Some(SECRET), None)], &Clock::system(0))
}

async fn rejection(tokens: &Tokens, token: &str) -> &'static str {
    match tokens.verify(token).await {
        Ok(_) => "",
        Err(TokenFault::Refused(reason)) => reason,
        Err(TokenFault::Expired) => "signed and expired",
        Err(TokenFault::KeysUnavailable) => "unavailable",
    }
}

#[tokio::test]
async fn a_valid_token_names_its_user_tenant_and_roles() {
    let tokens = tokens_with_secret();
    let custom_claims = with("exp", json!(4_102_444_800_i64));
    let until = Timestamp::from_second(4_102_444_830).unwrap();
    let (user, _) = tokens.verify(&secret_token(&custom_claims)).await.unwrap();
    assert_eq!((user.subject.as_str(), user.tenant.as_deref()), (SUBJECT, Some("acme")));
    assert_eq!(user.roles, Some(TokenRoles { names: vec!["editor".to_owned()], only: false, until }), "never from user_metadata");
    assert_eq!(user.until, until, "its roles are valid as long as the token is accepted");
    let several = with("app_metadata/roles", json!(["lead", "editor", "lead", 3]));
    let (user, _) = tokens.verify(&secret_token(&several)).await.unwrap();
    assert_eq!(user.roles.unwrap().names, ["editor", "lead"]);
    let bare = with("app_metadata", json!({}));
    let (user, _) = tokens.verify(&secret_token(&bare)).await.unwrap();
    assert_eq!((user.tenant, user.roles), (None, None));
    let mut anonymous = with("is_anonymous", json!(true));
    anonymous["app_metadata"]["roles"] = json!(["admin"]);
    let (user, _) = tokens.verify(&secret_token(&anonymous)).await.unwrap();
    let roles = user.roles.unwrap();
    assert_eq!((roles.names, roles.only), (vec!["guest".to_owned()], true));
}

#[tokio::test]
async fn an_empty_or_wrong_claim_is_not_a_missing_one() {
    let tokens = tokens_with_secret();
    for empty in [json!([]), json!(""), json!(" , "), json!([3])] {
        let (user, _) = tokens.verify(&secret_token(&with("app_metadata/roles", empty.clone()))).await.unwrap();
        let roles = user.roles.unwrap();
        assert_eq!((roles.names, roles.only), (Vec::new(), true), "{empty}: no roles, and not those of the next claim");
    }
    let (user, _) = tokens.verify(&secret_token(&with("app_metadata/roles", json!(null)))).await.unwrap();
    assert_eq!(user.roles.unwrap().names, ["editor"], "null is missing");
    for wrong in [json!(42), json!(true), json!({"admin": true})] {
        assert!(rejection(&tokens, &secret_token(&with("app_metadata/roles", wrong.clone()))).await.contains("roles"), "{wrong}");
    }
    for wrong in [json!(42), json!(["acme"]), json!({"id": "acme"}), json!(false), json!("")] {
        assert!(rejection(&tokens, &secret_token(&with("app_metadata/tenant_id", wrong.clone()))).await.contains("tenant"), "{wrong}");
    }
    let (user, _) = tokens.verify(&secret_token(&with("app_metadata/tenant_id", json!(null)))).await.unwrap();
    assert_eq!(user.tenant, None);
    let (user, _) = tokens.verify(&secret_token(&with("exp", json!(1e300)))).await.unwrap();
    assert_eq!(user.until, Timestamp::MAX);
    assert!(rejection(&tokens, &secret_token(&with("exp", json!(-1e300)))).await.contains("expired"));
}

#[tokio::test]
async fn every_claim_is_checked() {
    let tokens = tokens_with_secret();
    let now = Clock::system(0).now().as_second();
    for (path, value, fragment) in [
        ("exp", json!(now - 20), ""),
        ("exp", json!(now - 31), "signed and expired"),
        ("exp", json!(null), "expiry"),
        ("exp", json!("4102444800"), "expiry"),
        ("nbf", json!(now + 20), ""),
        ("nbf", json!(now + 60), "not valid yet"),
        ("nbf", json!("soon"), "not valid yet"),
        ("iss", json!("https://evil.example/auth/v1"), "issuer"),
        ("iss", json!(null), "issuer"),
        ("aud", json!(["other", "authenticated"]), ""),
        ("aud", json!("anon"), "audience"),
        ("aud", json!(["authenticated-not"]), "audience"),
        ("aud", json!(null), "audience"),
        ("role", json!("anon"), "anon"),
        ("role", json!("service_role"), "service_role"),
        ("role", json!("supabase_admin"), "authenticated"),
        ("role", json!(null), "authenticated"),
        ("sub", json!(null), "no user"),
        ("sub", json!("3"), "no user"),
    ] {
        let reason = rejection(&tokens, &secret_token(&with(path, value.clone()))).await;
        assert!(reason.contains(fragment) && reason.is_empty() == fragment.is_empty(), "{path} {value}: {reason:?}");
    }
    let forged = hs256(&json!({"alg": "HS256"}), &with("exp", json!(now - 31)), b"another secret of another project");
    assert_eq!(rejection(&tokens, &forged).await, "it has expired", "not signed by the issuer");
    let api_key = json!({"iss": "supabase", "ref": "abc", "role": "service_role", "iat": now, "exp": now + 1_000_000});
    assert!(!rejection(&tokens, &secret_token(&api_key)).await.is_empty());
}

#[tokio::test]
async fn without_a_project_url_the_secret_identifies_the_issuer() {
    let mut issuer = supabase(Some(SECRET), None);
    issuer.issuer = None;
    let tokens = tokens_of(&[issuer], &Clock::system(0));
    assert_eq!(rejection(&tokens, &secret_token(&claims())).await, "");
    assert!(rejection(&tokens, &secret_token(&with("iss", json!("supabase")))).await.contains("issuer"));
}

#[tokio::test]
async fn a_malformed_token_is_rejected() {
    let tokens = tokens_with_secret();
    let good = secret_token(&claims());
    let (signed, signature) = good.rsplit_once('.').unwrap();
    // A different first letter: the signature may start with any letter.
    let other = if signature.starts_with('A') { 'B' } else { 'A' };
    let header = |header: Value| hs256(&header, &claims(), SECRET.as_bytes());
    for bad in [
        "ey.ey.".to_owned(),
        signed.to_owned(),
        format!("{signed}."),
        format!("{good}="),
        format!("{good}.{good}"),
        format!("{signed}.{other}{}", &signature[1..]),
        good.replace('.', ".."),
        hs256(&json!({"alg": "HS256"}), &claims(), b"another secret of another project"),
        format!("{}.", unsigned(&json!({"alg": "none"}), &claims())),
        header(json!({"alg": "hs256"})),
        header(json!({"alg": "HS512"})),
        header(json!({"alg": "HS256", "crit": ["b64"], "b64": false})),
        header(json!({"typ": "JWT"})),
        format!("{good}{}", "A".repeat(20_000)),
    ] {
        assert_ne!(rejection(&tokens, &bad).await, "", "{bad:.200}");
    }
}

#[tokio::test]
async fn keys_are_fetched_once_and_each_key_has_one_algorithm() {
    let one = Curve::new("k1");
    let issuer = Issuer::start(json!([{"kty": "oct", "k": "c2VjcmV0", "kid": "s1"}, one.jwk(), rsa_jwk(), {"kty": 5}])).await;
    let tokens = tokens_of(&[supabase(Some(SECRET), Some(&issuer.url))], &Clock::system(0));
    for good in [one.token(), rsa_token("RS256"), secret_token(&claims()), one.sign(&json!({"alg": "ES256"}), &claims())] {
        assert_eq!(rejection(&tokens, &good).await, "");
    }
    assert_eq!(issuer.fetches(), 1);
    let point = one.pair.public_key().as_ref();
    let confused = |kid: &str, key: &[u8]| hs256(&json!({"alg": "HS256", "kid": kid}), &claims(), key);
    for bad in [
        confused("k1", point),
        confused("r1", RSA_MODULUS.as_bytes()),
        confused("k1", SECRET.as_bytes()),
        rsa_token("ES256"),
        rsa_token("PS256"),
        one.sign(&json!({"alg": "RS256", "kid": "k1"}), &claims()),
        one.sign(&json!({"alg": "RS256", "kid": "r1"}), &claims()),
        Curve::new("k1").token(),
    ] {
        assert_ne!(rejection(&tokens, &bad).await, "", "{bad}");
    }
    assert_eq!(rejection(&tokens, &confused("legacy", SECRET.as_bytes())).await, "", "Supabase names its old secret too");
}

#[tokio::test]
async fn a_new_key_is_fetched_at_once_and_unknown_key_ids_do_not_flood_the_issuer() {
    let (old, new) = (Curve::new("k1"), Curve::new("k2"));
    let issuer = Issuer::start(json!([old.jwk()])).await;
    let tokens = tokens_of(&[supabase(None, Some(&issuer.url))], &Clock::system(0));
    let (first, second) = (old.token(), old.token());
    let together = tokio::join!(rejection(&tokens, &first), rejection(&tokens, &second));
    assert_eq!((together, issuer.fetches()), (("", ""), 1), "two requests at the same time cause one fetch");
    issuer.published.send_replace(Some(json!([new.jwk()])));
    assert_eq!(rejection(&tokens, &new.token()).await, "");
    assert_eq!(issuer.fetches(), 2);
    for _ in 0..50 {
        assert!(rejection(&tokens, &Curve::new("nope").token()).await.contains("no key"));
    }
    assert!(rejection(&tokens, &old.token()).await.contains("no key"), "the old key is gone");
    assert_eq!(issuer.fetches(), 2, "at most one fetch per cool-down");
    assert!(rejection(&tokens, &secret_token(&claims())).await.contains("no key"), "no secret is trusted");
}

#[tokio::test]
async fn an_unreachable_issuer_does_not_make_tokens_invalid() {
    let key = Curve::new("k1");
    let issuer = Issuer::start(json!([key.jwk()])).await;
    issuer.published.send_replace(None);
    let tokens = tokens_of(&[supabase(None, Some(&issuer.url))], &Clock::system(0));
    for _ in 0..10 {
        assert_eq!(rejection(&tokens, &key.token()).await, "unavailable");
    }
    assert_eq!(issuer.fetches(), 1, "a failure is not repeated at once");
    assert!(rejection(&tokens, &key.sign(&json!({"alg": "ES256", "kid": "k1"}), &with("exp", json!(1)))).await.contains("expired"));
}

#[tokio::test]
async fn another_issuer_uses_its_configured_claims() {
    let key = Curve::new("k1");
    let issuer = Issuer::start(json!([key.jwk()])).await;
    let other = TokenIssuer {
        kind: IssuerKind::Other,
        issuer: Some("https://login.example/".to_owned()),
        audience: "werkruf".to_owned(),
        tenant_claims: vec!["org.slug".to_owned()],
        roles_claims: vec!["https://example.org/roles".to_owned()],
        ..supabase(None, Some(&issuer.url))
    };
    let tokens = tokens_of(&[supabase(Some(SECRET), None), other], &Clock::system(0));
    let mut custom_claims = json!({"iss": "https://login.example/", "aud": "werkruf", "sub": "auth0|7", "exp": 4_102_444_800_i64,
        "org": {"slug": "acme"}, "https://example.org/roles": "lead, editor"});
    let sign = |claims: &Value| key.sign(&json!({"alg": "ES256", "kid": "k1"}), claims);
    let token = sign(&custom_claims);
    let (user, _) = tokens.verify(&token).await.unwrap();
    assert_eq!((user.subject.as_str(), user.tenant.as_deref()), ("auth0|7", Some("acme")));
    assert_eq!(user.roles.unwrap().names, ["editor", "lead"]);
    custom_claims["role"] = json!("service_role");
    assert!(rejection(&tokens, &sign(&custom_claims)).await.contains("service_role"));
    custom_claims["role"] = json!(null);
    custom_claims["aud"] = json!("authenticated");
    assert!(rejection(&tokens, &sign(&custom_claims)).await.contains("audience"));
}

/// Verifies the tokens of a file with its own clock, keys and expected results; returns how many there are.
async fn verify_vectors(text: &str) -> usize {
    let vectors: Value = serde_json::from_str(text).unwrap();
    let offset = vectors["now"].as_i64().unwrap() - Clock::system(0).now().as_second();
    let issuer = Issuer::start(vectors["jwks"]["keys"].clone()).await;
    let project = TokenIssuer {
        issuer: vectors["issuer"].as_str().map(str::to_owned),
        ..supabase(vectors["hs256_secret"].as_str(), Some(&issuer.url))
    };
    let tokens = tokens_of(&[project], &Clock::system(offset));
    let vectors = vectors["vectors"].as_array().unwrap();
    for vector in vectors {
        let reason = rejection(&tokens, vector["token"].as_str().unwrap()).await;
        assert_eq!(reason.is_empty(), vector["accept"].as_bool().unwrap(), "{}: {reason}", vector["name"]);
    }
    vectors.len()
}

/// The project's own corpus, and the vectors beside the checkout if they exist.
#[tokio::test]
async fn recorded_tokens_have_the_expected_results() {
    assert_eq!(verify_vectors(include_str!("../../../../tests/corpus/tokens.json")).await, 19);
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures/apis/supabase_jwt_vectors.json");
    if let Ok(text) = std::fs::read_to_string(beside) {
        assert!(verify_vectors(&text).await >= 14);
    }
}
