//! The rights of collections, by every route that reads or writes documents. `tests/outside/check_knowledge_rights.py` does the same on PostgreSQL.

use reqwest::{Method, Response};
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::support::{TestServer, body, refusal};

const SECRET: &str = "Gehaltsband xylophonquartett";
const HIDDEN: &str = "hr-secret";

/// A server with a public and a secret collection, a key of a guest, and one of a lead.
async fn server() -> (TestServer, String, String) {
    let server = TestServer::open().await;
    let rights = json!({"read": ["lead"], "write": ["lead"]});
    assert_eq!(put_rights(&server, HIDDEN, &rights).await.status(), 200, "rights can be set before the first document");
    for (collection, id, text) in [("default", "open", "Die Kantine öffnet um elf."), (HIDDEN, "pay", SECRET)] {
        let document = json!({"collection": collection, "documents": [{"id": id, "title": id, "text": text}]});
        assert_eq!(server.operator(Method::POST, "/api/knowledge/documents").json(&document).send().await.unwrap().status(), 200);
    }
    let (guest, lead) = (server.key(Some(5), &["chat", "tools", "read"]).await, server.key(Some(2), &["chat", "tools", "read"]).await);
    (server, guest, lead)
}

async fn put_rights(server: &TestServer, collection: &str, rights: &Value) -> Response {
    server.operator(Method::PUT, &format!("/api/knowledge/collections/{collection}/rights")).json(rights).send().await.unwrap()
}

async fn get(server: &TestServer, key: &str, path: &str) -> Response {
    server.with_key(key, Method::GET, path).send().await.unwrap()
}

async fn search(server: &TestServer, key: &str, collection: &str) -> Response {
    let request = json!({"query": "xylophonquartett", "collection": collection});
    server.with_key(key, Method::POST, "/api/knowledge/search").json(&request).send().await.unwrap()
}

/// The result of the tool for the collection of the header.
async fn tool(server: &TestServer, key: &str, collection: &str) -> Value {
    tool_for(server, key, collection, "xylophonquartett").await
}

async fn tool_for(server: &TestServer, key: &str, collection: &str, query: &str) -> Value {
    let request = server.with_key(key, Method::POST, "/api/tools/search_knowledge_base/invoke").header("x-collection-id", collection);
    body(request.json(&json!({"input": {"query": query}})).send().await.unwrap()).await
}

#[tokio::test]
async fn a_guest_reads_a_hidden_collection_by_no_route() {
    let (server, guest, lead) = server().await;
    let missing = (404, "not_found".to_owned());
    for collection in [HIDDEN, "no-such-collection"] {
        assert_eq!(refusal(search(&server, &guest, collection).await).await, missing);
        for path in [
            format!("/api/knowledge/documents?collection={collection}"),
            format!("/api/knowledge/documents/pay?collection={collection}"),
            format!("/api/knowledge/collections/{collection}"),
        ] {
            assert_eq!(refusal(get(&server, &guest, &path).await).await, missing, "{path}");
        }
        let path = format!("/api/knowledge/documents/pay?collection={collection}");
        assert_eq!(refusal(server.with_key(&guest, Method::DELETE, &path).send().await.unwrap()).await, missing);
        let document = json!({"collection": collection, "id": "x", "title": "x", "text": "x"});
        let added = server.with_key(&guest, Method::POST, "/api/knowledge/documents").json(&document).send().await.unwrap();
        assert_eq!(refusal(added).await, missing);
        let found = tool(&server, &guest, collection).await;
        assert_eq!((&found["data"]["kind"], &found["data"]["sources"]), (&json!("nothing"), &json!([])));
    }
    let acted = server.as_user(5, Method::POST, "/api/knowledge/search").json(&json!({"query": "x", "collection": HIDDEN}));
    assert_eq!(refusal(acted.send().await.unwrap()).await, missing, "the operator acts with the rights of the user");
    let acted = server.as_user(1, Method::POST, "/api/knowledge/search").json(&json!({"query": "xylophonquartett", "collection": HIDDEN}));
    assert_eq!(body(acted.send().await.unwrap()).await["results"][0]["content"], SECRET, "user 1 is an administrator too");
    assert_eq!(body(get(&server, &guest, "/api/knowledge/collections").await).await["collections"], json!(["default"]));
    assert_eq!(body(get(&server, &lead, "/api/knowledge/collections").await).await["collections"], json!(["default", HIDDEN]));
    assert_eq!(body(search(&server, &lead, HIDDEN).await).await["results"][0]["content"], SECRET);
    assert_eq!(tool(&server, &lead, HIDDEN).await["data"]["sources"][0]["snippet"], SECRET);
    let found = body(search(&server, &guest, "default").await).await;
    assert_eq!(found["results"], json!([]), "the default collection is open, and has nothing of the secret");
}

#[tokio::test]
async fn a_chat_finds_what_its_person_may_read() {
    let (server, guest, lead) = server().await;
    assert_eq!(put_rights(&server, "default", &json!({"read": ["lead"], "write": []})).await.status(), 200);
    for (key, finds) in [(&guest, false), (&lead, true)] {
        server.model.script(vec![Reply::calls(vec![call("search_knowledge_base", json!({"query": "Kantine"}))]), Reply::text("Done.")]);
        let request = server.with_key(key, Method::POST, "/api/chat").header("accept", "application/json");
        let answered = request.json(&json!({"message": "Wann öffnet die Kantine?"})).send().await.unwrap();
        assert_eq!(answered.status(), 200);
        let sent = server.model.requests().last().unwrap().messages().last().unwrap().to_string();
        assert_eq!(sent.contains("Die Kantine öffnet um elf."), finds, "{sent}");
    }
}

#[tokio::test]
async fn a_change_of_rights_counts_at_once() {
    let (server, guest, lead) = server().await;
    for _ in 0..3 {
        assert_eq!(search(&server, &guest, HIDDEN).await.status(), 404);
        assert_eq!(put_rights(&server, HIDDEN, &json!({"read": ["*"], "write": []})).await.status(), 200);
        assert_eq!(body(search(&server, &guest, HIDDEN).await).await["results"][0]["content"], SECRET);
        assert_eq!(tool(&server, &guest, HIDDEN).await["data"]["sources"][0]["snippet"], SECRET);
        assert_eq!(put_rights(&server, HIDDEN, &json!({"read": [], "write": []})).await.status(), 200);
        assert_eq!(search(&server, &lead, HIDDEN).await.status(), 404);
        assert_eq!(tool(&server, &guest, HIDDEN).await["data"]["kind"], "nothing");
    }
    let found = server.operator(Method::POST, "/api/knowledge/search").json(&json!({"query": "xylophonquartett", "collection": HIDDEN}));
    assert_eq!(body(found.send().await.unwrap()).await["results"][0]["content"], SECRET, "an administrator reads everything");
}

#[tokio::test]
async fn a_role_may_write_where_it_is_named() {
    let (server, guest, lead) = server().await;
    let add = async |key: &str, collection: &str| {
        let document = json!({"collection": collection, "id": "new", "title": "new", "text": "Neu."});
        server.with_key(key, Method::POST, "/api/knowledge/documents").json(&document).send().await.unwrap()
    };
    let forbidden = (403, "forbidden".to_owned());
    assert_eq!(add(&lead, HIDDEN).await.status(), 200);
    assert_eq!(refusal(add(&lead, "default").await).await, forbidden, "everybody reads it, only an administrator writes");
    assert_eq!(refusal(add(&lead, "new-collection").await).await, (404, "not_found".to_owned()));
    assert_eq!(refusal(add(&guest, "default").await).await, forbidden);
    let only_read = server.key(Some(2), &["read"]).await;
    assert_eq!(refusal(add(&only_read, HIDDEN).await).await, forbidden, "a key that only reads writes nothing");
    let path = format!("/api/knowledge/documents/new?collection={HIDDEN}");
    assert_eq!(server.with_key(&lead, Method::DELETE, &path).send().await.unwrap().status(), 204);
    let path = "/api/knowledge/documents/open";
    assert_eq!(refusal(server.with_key(&lead, Method::DELETE, path).send().await.unwrap()).await, forbidden);
    let parts = format!(
        "--cut\r\nContent-Disposition: form-data; name=\"collection\"\r\n\r\n{HIDDEN}\r\n--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.md\"\r\n\r\nAbc.\r\n--cut--\r\n"
    );
    let upload = async |key: &str| {
        let request =
            server.with_key(key, Method::POST, "/api/knowledge/files").header("content-type", "multipart/form-data; boundary=cut");
        request.body(parts.clone()).send().await.unwrap()
    };
    assert_eq!(body(upload(&lead).await).await["files"][0]["status"], "accepted");
    assert_eq!(refusal(upload(&guest).await).await, (404, "not_found".to_owned()));
}

#[tokio::test]
async fn rights_are_shown_and_checked() {
    let (server, guest, lead) = server().await;
    let path = format!("/api/knowledge/collections/{HIDDEN}/rights");
    let stored = json!({"collection": HIDDEN, "read": ["lead"], "write": ["lead"], "trust": "trusted"});
    assert_eq!(body(server.operator(Method::GET, &path).send().await.unwrap()).await, stored);
    for key in [&guest, &lead] {
        assert_eq!(refusal(get(&server, key, &path).await).await, (403, "forbidden".to_owned()));
        let put = server.with_key(key, Method::PUT, &path).json(&json!({"read": ["*"], "write": []})).send().await.unwrap();
        assert_eq!(refusal(put).await, (403, "forbidden".to_owned()));
    }
    for wrong in
        [json!({"read": ["*"]}), json!({"read": "*", "write": []}), json!({"read": [], "write": ["*"]}), json!({"read": [""], "write": []})]
    {
        assert_eq!(refusal(put_rights(&server, HIDDEN, &wrong).await).await, (400, "invalid_request".to_owned()), "{wrong}");
    }
    assert_eq!(body(server.operator(Method::GET, &path).send().await.unwrap()).await, stored);
    let none = server.operator(Method::GET, "/api/knowledge/collections/none/rights").send().await.unwrap();
    assert_eq!(refusal(none).await, (404, "not_found".to_owned()));
}

#[tokio::test]
async fn a_key_with_a_collection_sees_and_sets_no_rights_of_another() {
    let (server, ..) = server().await;
    let request = json!({"scopes": ["admin"], "collection": "own"});
    let key = body(server.operator(Method::POST, "/api/keys").json(&request).send().await.unwrap()).await;
    let key = key["key"].as_str().unwrap();
    let path = |collection: &str| format!("/api/knowledge/collections/{collection}/rights");
    let put = async |collection: &str| {
        let rights = json!({"read": ["*"], "write": []});
        server.with_key(key, Method::PUT, &path(collection)).json(&rights).send().await.unwrap()
    };
    assert_eq!(refusal(get(&server, key, &path(HIDDEN)).await).await, (404, "not_found".to_owned()));
    assert_eq!(refusal(put(HIDDEN).await).await, (404, "not_found".to_owned()));
    assert_eq!(put("own").await.status(), 200);
}

#[tokio::test]
async fn a_result_says_that_its_collection_is_untrusted() {
    let (server, _, lead) = server().await;
    assert_eq!(tool(&server, &lead, HIDDEN).await["meta"]["routing"].get("untrusted"), None);
    let untrusted = json!({"read": ["lead"], "write": [], "trust": "untrusted"});
    assert_eq!(body(put_rights(&server, HIDDEN, &untrusted).await).await["trust"], "untrusted");
    let kept = body(put_rights(&server, HIDDEN, &json!({"read": ["lead"], "write": []})).await).await;
    assert_eq!(kept["trust"], "untrusted", "trust stays as it is unless it is named");
    assert_eq!(tool(&server, &lead, HIDDEN).await["meta"]["routing"]["untrusted"], true);
    let nothing = tool_for(&server, &lead, HIDDEN, "zzyzx").await;
    assert_eq!((&nothing["data"]["sources"], nothing["meta"]["routing"].get("untrusted")), (&json!([]), None), "nothing of it is returned");
    assert_eq!(body(search(&server, &lead, HIDDEN).await).await["routing"]["untrusted"], true);
}

#[tokio::test]
async fn metadata_and_lists_of_documents_are_bounded() {
    let server = TestServer::open().await;
    let add = async |documents: Value| {
        let request =
            server.operator(Method::POST, "/api/knowledge/documents").json(&json!({"collection": "large", "documents": documents}));
        request.send().await.unwrap()
    };
    let document = |number: usize, bytes: usize| json!({"id": format!("{number:04}"), "title": "t", "text": "x", "metadata": {"note": "a".repeat(bytes)}});
    assert_eq!(refusal(add(json!([document(0, 17_000)])).await).await, (400, "invalid_request".to_owned()));
    let many: Vec<Value> = (0..300).map(|number| document(number, 16_000)).collect();
    assert_eq!(add(json!(many)).await.status(), 200);
    let (mut after, mut pages, mut seen) = (String::new(), 0, 0);
    loop {
        let path = format!("/api/knowledge/documents?collection=large&limit=1000&after={after}");
        let page = body(server.operator(Method::GET, &path).send().await.unwrap()).await;
        assert!(page.to_string().len() < 5 * 1024 * 1024);
        seen += page["documents"].as_array().unwrap().len();
        pages += 1;
        match page["next_after"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!((pages, seen), (2, 300));
}
