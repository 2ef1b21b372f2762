//! The audit log through the API: which acts are in it, who may read it, and that tampering is found.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{TestServer, body, refusal};

async fn entries(server: &TestServer, chain: &str) -> Vec<Value> {
    let path = format!("/api/audit?limit=1000&tenant={chain}");
    body(server.operator(Method::GET, &path).send().await.unwrap()).await["audit"].as_array().unwrap().clone()
}

fn actions(entries: &[Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect()
}

async fn verify(server: &TestServer) -> Value {
    body(server.operator(Method::GET, "/api/audit/verify").send().await.unwrap()).await
}

#[tokio::test]
async fn administrative_acts_are_listed_with_their_actor() {
    let server = TestServer::open().await;
    let before = entries(&server, "demo").await.len();
    let made = json!({"scopes": ["chat"], "user_id": 3, "name": "phone"});
    let made = body(server.operator(Method::POST, "/api/keys").json(&made).send().await.unwrap()).await;
    let (id, secret) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let admin = server.key(Some(1), &["admin"]).await;
    let rotated = server.with_key(&admin, Method::POST, &format!("/api/keys/{id}/rotate")).send().await.unwrap();
    assert_eq!(rotated.status(), 201);
    assert_eq!(server.with_key(&admin, Method::DELETE, &format!("/api/keys/{id}")).send().await.unwrap().status(), 204);
    let rights = server.operator(Method::PUT, "/api/knowledge/collections/hr/rights").json(&json!({"read": ["lead"], "write": []}));
    assert_eq!(rights.send().await.unwrap().status(), 200);
    let erased = server.operator(Method::POST, "/api/people/users/5/erase").send().await.unwrap();
    assert_eq!(erased.status(), 200);

    let all = entries(&server, "demo").await;
    let new = &all[before..];
    assert_eq!(actions(new), ["key.create", "key.create", "key.rotate", "key.revoke", "collection.rights", "person.erase"]);
    assert_eq!((&new[0]["subject"], &new[0]["actor"]["operator"], &new[0]["before"]), (&json!(id), &json!(true), &Value::Null));
    assert_eq!((&new[0]["after"]["name"], &new[0]["after"]["scopes"]), (&json!("phone"), &json!(["chat"])));
    assert_eq!(new[0]["address"], "127.0.0.1");
    assert_eq!((&new[3]["actor"]["user_id"], &new[3]["actor"]["operator"]), (&json!("1"), &json!(false)));
    assert_eq!(new[3]["actor"]["key_id"], new[1]["subject"], "the key that acted");
    assert_eq!((&new[4]["subject"], &new[4]["after"]["read"]), (&json!("hr"), &json!(["lead"])));
    let text = serde_json::to_string(&all).unwrap();
    assert!(!text.contains(secret) && !text.contains(&werkruf_store::KeyDigest::of(secret).0), "no secret and no digest of one");
    assert!(!text.contains("\"Eva\""), "the erased person");
    let seqs: Vec<i64> = all.iter().map(|entry| entry["seq"].as_i64().unwrap()).collect();
    assert!(seqs.iter().copied().eq(1..=i64::try_from(seqs.len()).unwrap()), "{seqs:?}");
    let report = verify(&server).await;
    assert_eq!((&report["intact"], &report["chains"][0]["signed"]), (&json!(true), &json!(true)), "{report}");

    let page = body(server.operator(Method::GET, "/api/audit?limit=2&after=1").send().await.unwrap()).await;
    assert_eq!((page["audit"].as_array().unwrap().as_slice(), &page["next_after"]), (&all[1..3], &json!(3)));
    let (mut newest_first, mut path) = (Vec::new(), "/api/audit?limit=4&order=desc".to_owned());
    loop {
        let page = body(server.operator(Method::GET, &path).send().await.unwrap()).await;
        newest_first.extend(page["audit"].as_array().unwrap().clone());
        let Some(after) = page["next_after"].as_i64() else { break };
        path = format!("/api/audit?limit=4&order=desc&after={after}");
    }
    newest_first.reverse();
    assert_eq!(newest_first, all);
}

#[tokio::test]
async fn acts_on_the_server_and_failed_logins_are_in_its_own_chain() {
    let server = TestServer::open().await;
    for _ in 0..3 {
        let refused = server.with_key("wk_guessed", Method::GET, "/api/tools").send().await.unwrap();
        assert_eq!(refused.status(), 401);
    }
    assert_eq!(server.operator(Method::POST, "/api/admin/reload").send().await.unwrap().status(), 200);
    let path = server.folder.path().join("copy.db");
    let copied = server.operator(Method::POST, "/api/admin/backup").json(&json!({"path": path})).send().await.unwrap();
    assert_eq!(copied.status(), 200);
    assert_eq!(server.operator(Method::POST, "/api/admin/retention").send().await.unwrap().status(), 200);
    assert_eq!(server.operator(Method::POST, "/api/admin/secrets/rotate").send().await.unwrap().status(), 200);
    let all = entries(&server, "server").await;
    assert_eq!(actions(&all), ["login.failed", "server.reload", "database.backup", "retention.run", "secrets.rotate"], "one per minute");
    assert_eq!((&all[0]["actor"]["operator"], &all[0]["address"]), (&json!(false), &json!("127.0.0.1")));
    assert_eq!(verify(&server).await["intact"], true, "also after the rotation of the key");
}

#[tokio::test]
async fn only_an_administrator_reads_the_log_of_its_own_tenant() {
    let server = TestServer::open().await;
    let import = json!({"tenant": "beta", "roles": [{"id": 1, "name": "lead", "permissions": []}]});
    assert_eq!(server.operator(Method::POST, "/api/workspace/import").json(&import).send().await.unwrap().status(), 200);
    assert_eq!(actions(&entries(&server, "beta").await), ["people.import", "role.put"]);
    let (chat, admin) = (server.key(Some(3), &["chat", "read"]).await, server.key(Some(1), &["admin"]).await);
    let get = async |key: &str, path: &str| server.with_key(key, Method::GET, path).send().await.unwrap();
    for path in ["/api/audit", "/api/audit/verify"] {
        assert_eq!(refusal(get(&chat, path).await).await, (403, "forbidden".to_owned()), "{path}");
        assert_eq!(get(&admin, path).await.status(), 200);
        assert_eq!(refusal(get(&admin, &format!("{path}?tenant=server")).await).await, (403, "forbidden".to_owned()));
        assert_eq!(refusal(get(&admin, &format!("{path}?tenant=beta")).await).await, (404, "not_found".to_owned()));
        assert_eq!(refusal(get(&admin, &format!("{path}?tenant=none")).await).await, (404, "not_found".to_owned()));
    }
    assert_eq!(body(get(&admin, "/api/audit/verify").await).await["chains"].as_array().unwrap().len(), 1, "only its own");
    assert_eq!(refusal(get(&admin, "/api/audit?after=x").await).await, (400, "invalid_request".to_owned()));
    let rotate = server.with_key(&admin, Method::POST, "/api/admin/secrets/rotate").send().await.unwrap();
    assert_eq!(refusal(rotate).await, (403, "forbidden".to_owned()));
}
