//! `/api/people`: users, roles and branches over HTTP, and who may use which tool.

use reqwest::{Method, Response};
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call};

use crate::support::{Stream, TestServer, body, refusal};

async fn send(server: &TestServer, method: Method, path: &str, request: Value) -> Response {
    server.operator(method, &format!("/api/people/{path}")).json(&request).send().await.unwrap()
}

async fn get(server: &TestServer, path: &str) -> Value {
    body(server.operator(Method::GET, &format!("/api/people/{path}")).send().await.unwrap()).await
}

/// Status, code and the paths of the details.
async fn faults(response: Response) -> (u16, Value, Vec<String>) {
    let status = response.status().as_u16();
    let error = body(response).await["error"].clone();
    let details = error["details"].as_array().into_iter().flatten();
    (status, error["code"].clone(), details.map(|detail| detail["path"].as_str().unwrap().to_owned()).collect())
}

#[tokio::test]
async fn users_are_listed_made_changed_and_deactivated() {
    let server = TestServer::open().await;
    let first = get(&server, "users?limit=4").await;
    assert_eq!((first["users"].as_array().unwrap().len(), &first["next_after"]), (4, &json!(4)));
    let rest = get(&server, "users?limit=4&after=4").await;
    let ids: Vec<&Value> = rest["users"].as_array().unwrap().iter().map(|user| &user["id"]).collect();
    assert_eq!((ids, &rest["next_after"]), (vec![&json!(5), &json!(6)], &Value::Null));
    assert_eq!(get(&server, "users?order=desc&limit=1").await["users"][0]["id"], 6);

    let new = json!({"first_name": "Gil", "last_name": "Soto", "locale": "es-ES", "phone": "+34 600 111 222", "external_id": "sub-gil",
        "branch_id": 1, "role_ids": [3]});
    let made = send(&server, Method::POST, "users", new).await;
    assert_eq!(made.status(), 201);
    let expected = json!({"id": 7, "first_name": "Gil", "last_name": "Soto", "email": null, "phone": "+34 600 111 222",
        "whatsapp_user_id": null, "external_id": "sub-gil", "locale": "es-ES", "time_zone": null, "branch_id": 1, "role_ids": [3],
        "active": true});
    assert_eq!(body(made).await, expected);
    assert_eq!(get(&server, "users/7").await, expected);
    assert_eq!(get(&server, "users/ext:sub-gil").await, expected);
    let changed = send(&server, Method::PATCH, "users/7", json!({"email": "gil@demo.example", "phone": null})).await;
    assert_eq!(changed.status(), 200);
    let mut with_email = expected;
    (with_email["email"], with_email["phone"]) = (json!("gil@demo.example"), Value::Null);
    assert_eq!(body(changed).await, with_email);
    let roles = send(&server, Method::PUT, "users/7/roles", json!({"role_ids": [2, 4]})).await;
    assert_eq!(body(roles).await["role_ids"], json!([2, 4]));

    let key = server.key(Some(7), &["read", "chat"]).await;
    let look = async || server.with_key(&key, Method::GET, "/api/conversations").send().await.unwrap();
    assert_eq!(look().await.status(), 200);
    assert_eq!(send(&server, Method::DELETE, "users/7", json!({})).await.status(), 204);
    assert_eq!(refusal(look().await).await, (403, "unknown_user".to_owned()));
    let as_user = server.as_user(7, Method::GET, "/api/conversations").send().await.unwrap();
    assert_eq!(refusal(as_user).await, (403, "unknown_user".to_owned()));
    let new_key = server.operator(Method::POST, "/api/keys").json(&json!({"user_id": 7, "scopes": ["read"]})).send().await.unwrap();
    assert_eq!(refusal(new_key).await, (404, "unknown_user".to_owned()));
    assert_eq!(get(&server, "users/7").await["active"], false);
    assert_eq!(send(&server, Method::PATCH, "users/7", json!({"active": true})).await.status(), 200);
    assert_eq!(look().await.status(), 200, "the key works again");

    let log = body(server.operator(Method::GET, "/api/audit?limit=1000").send().await.unwrap()).await;
    let of_gil = |entry: &&Value| entry["subject"] == "7" && entry["action"].as_str().unwrap().starts_with("person.");
    let acts: Vec<&Value> = log["audit"].as_array().unwrap().iter().filter(of_gil).map(|entry| &entry["action"]).collect();
    assert_eq!(acts, ["person.put", "person.put", "person.put", "person.deactivate", "person.activate"]);
}

#[tokio::test]
async fn roles_and_branches_are_deleted_when_nobody_has_them() {
    let server = TestServer::open().await;
    let right = json!({"entity": "table_requests", "entity_type": "table", "access": "read", "scope": "all"});
    let made = send(&server, Method::POST, "roles", json!({"id": 20, "name": "auditor", "permissions": [right]})).await;
    assert_eq!((made.status().as_u16(), body(made).await), (201, json!({"id": 20, "name": "auditor", "permissions": [right]})));
    let fewer = body(send(&server, Method::PUT, "roles/20/permissions", json!([])).await).await;
    assert_eq!(fewer, json!({"id": 20, "name": "auditor", "permissions": []}));
    assert_eq!(body(send(&server, Method::PATCH, "roles/20", json!({"name": "reader"})).await).await["name"], "reader");
    let used = send(&server, Method::DELETE, "roles/3", json!({})).await;
    assert_eq!(used.status(), 409);
    let error = body(used).await["error"].clone();
    assert_eq!((&error["code"], &error["details"]), (&json!("in_use"), &json!({"users": 3, "tables": []})));
    assert_eq!(send(&server, Method::DELETE, "roles/20", json!({})).await.status(), 204);
    assert_eq!(refusal(send(&server, Method::DELETE, "roles/20", json!({})).await).await, (404, "not_found".to_owned()));

    let branch = send(&server, Method::POST, "branches", json!({"name": "Lima", "time_zone": "America/Lima"})).await;
    assert_eq!(body(branch).await, json!({"id": 3, "name": "Lima", "time_zone": "America/Lima"}));
    assert_eq!(body(send(&server, Method::PATCH, "branches/3", json!({"name": "Lima Sur"})).await).await["name"], "Lima Sur");
    assert_eq!(refusal(send(&server, Method::DELETE, "branches/1", json!({})).await).await, (409, "in_use".to_owned()));
    assert_eq!(send(&server, Method::DELETE, "branches/3", json!({})).await.status(), 204);
    assert_eq!(get(&server, "branches").await["branches"].as_array().unwrap().len(), 2);

    // The next branch gets the number of the last one that was deleted; rows must not come with it.
    let branch = send(&server, Method::POST, "branches", json!({"name": "Lima", "time_zone": "America/Lima"})).await;
    assert_eq!(body(branch).await["id"], 3);
    let request = json!({"id": 900, "title": "Desk", "status": "open", "requester_id": 3, "branch_id": 3});
    let import = server.operator(Method::POST, "/api/workspace/import").json(&json!({"tenant": "demo", "requests": [request]}));
    assert_eq!(import.send().await.unwrap().status(), 200);
    let error = body(send(&server, Method::DELETE, "branches/3", json!({})).await).await["error"].clone();
    assert_eq!((&error["code"], &error["details"]), (&json!("in_use"), &json!({"users": 0, "tables": ["requests"]})));
}

#[tokio::test]
async fn a_role_that_is_named_elsewhere_keeps_its_name() {
    let server = TestServer::open_with("[auth]\nunknown_users = 'guest'\nguest_role = 'visitor'\n").await;
    for (id, name) in [(20, "visitor"), (21, "reader")] {
        assert_eq!(send(&server, Method::POST, "roles", json!({"id": id, "name": name})).await.status(), 201);
    }
    let in_use = (409, "in_use".to_owned());
    assert_eq!(refusal(send(&server, Method::DELETE, "roles/20", json!({})).await).await, in_use);
    assert_eq!(refusal(send(&server, Method::PATCH, "roles/20", json!({"name": "guest2"})).await).await, in_use);
    assert_eq!(send(&server, Method::PATCH, "roles/20", json!({"name": "visitor", "permissions": []})).await.status(), 200);
    let taken = (409, "name_taken".to_owned());
    assert_eq!(refusal(send(&server, Method::POST, "roles", json!({"name": "reader"})).await).await, taken);
    assert_eq!(refusal(send(&server, Method::PATCH, "roles/21", json!({"name": "visitor"})).await).await, taken);
    assert_eq!(send(&server, Method::DELETE, "roles/21", json!({})).await.status(), 204);

    let huge = server.as_user(i64::MAX, Method::GET, "/api/conversations").send().await.unwrap();
    assert_eq!(refusal(huge).await, (403, "unknown_user".to_owned()), "a guest needs a number that others can follow");
    assert_eq!(server.as_user(700, Method::GET, "/api/conversations").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn the_row_of_a_call_about_another_user_says_what_it_needs() {
    let server = TestServer::open().await;
    let row = async |user: i64, input: Value| {
        let request = server.as_user(user, Method::POST, "/api/tools/get_user_info/invoke").json(&json!({"input": input}));
        let answer = body(request.send().await.unwrap()).await;
        let calls = body(server.as_user(user, Method::GET, "/api/tool-calls?order=desc&limit=1").send().await.unwrap()).await;
        let path = format!("/api/tool-calls/{}", calls["tool_calls"][0]["id"].as_str().unwrap());
        (answer["status"].clone(), body(server.operator(Method::GET, &path).send().await.unwrap()).await["permission"].clone())
    };
    let own = json!({"needs": null, "granted": true, "role": null, "permission": null, "scope": null});
    assert_eq!(row(3, json!({})).await, (json!("ok"), own.clone()));
    assert_eq!(row(3, json!({"userId": 3.0})).await, (json!("ok"), own));
    for (user, status) in [(2, "ok"), (5, "error")] {
        let (answered, permission) = row(user, json!({"userId": 3})).await;
        let may = get(&server, &format!("users/{user}/may/get_user_info?user_id=3")).await;
        assert_eq!((answered, &permission["granted"]), (json!(status), &may["allowed"]), "{permission} {may}");
        for field in ["needs", "role", "permission", "scope"] {
            assert_eq!(permission[field], may[field], "{field} of user {user}");
        }
        assert_eq!(permission["needs"], "table_users:table:read");
    }
    assert_eq!(get(&server, "roles").await["next_after"], Value::Null);
}

#[tokio::test]
async fn a_wrong_row_is_refused_with_its_paths() {
    let server = TestServer::open().await;
    let invalid = json!("people_invalid");
    let post = async |path: &str, request: Value| send(&server, Method::POST, path, request).await;
    let patch = async |path: &str, request: Value| send(&server, Method::PATCH, path, request).await;
    let put = async |path: &str, request: Value| send(&server, Method::PUT, path, request).await;
    let cases = [
        (post("users", json!({"first_name": "A", "locale": "de"})).await, vec!["/last_name"]),
        (patch("users/3", json!({"wage": 1, "locale": "in German"})).await, vec!["/wage", "/locale"]),
        (patch("users/3", json!({"branch_id": 9, "role_ids": [3, 99]})).await, vec!["/branch_id", "/role_ids/1"]),
        (patch("users/3", json!({"id": 4})).await, vec!["/id"]),
        (patch("users/3", json!({"active": null})).await, vec!["/active"]),
        (patch("users/3", json!({"phone": "0171 2345678"})).await, vec!["/phone"]),
        (post("users", json!({"id": 9_007_199_254_740_993_i64, "first_name": "A", "last_name": "", "locale": "de"})).await, vec!["/id"]),
        (patch("users/3", json!({"first_name": "x".repeat(256)})).await, vec!["/first_name"]),
        (put("users/3/roles", json!({"role_ids": [99]})).await, vec!["/role_ids/0"]),
        (put("users/3/roles", json!({"role_ids": null})).await, vec!["/role_ids"]),
        (put("users/3/roles", json!({"role_ids": [], "active": false})).await, vec![""]),
        (put("roles/3/permissions", json!({})).await, vec![""]),
        (put("roles/3/permissions", json!([{"entity": "t", "entity_type": "", "access": "all"}])).await, vec!["/0/access", "/0/scope"]),
        (post("branches", json!({"name": "X", "time_zone": "Mars/Base"})).await, vec!["/time_zone"]),
    ];
    for (answer, paths) in cases {
        let (status, code, found) = faults(answer).await;
        assert_eq!((status, code, found), (422, invalid.clone(), paths.into_iter().map(str::to_owned).collect()));
    }
    let taken = post("users", json!({"id": 3, "first_name": "A", "last_name": "", "locale": "de"})).await;
    assert_eq!(refusal(taken).await, (409, "id_taken".to_owned()));
    for (request, code) in [(json!([]), "invalid_request"), (json!("text"), "invalid_request")] {
        assert_eq!(refusal(post("users", request).await).await, (400, code.to_owned()));
    }
    for path in ["users/99", "users/03", "users/x", "users/ext:nobody", "roles/99", "branches/x"] {
        assert_eq!(refusal(patch(path, json!({"name": "x"})).await).await, (404, "not_found".to_owned()), "{path}");
    }
    for query in ["after=x", "limit=0", "order=up"] {
        let answer = server.operator(Method::GET, &format!("/api/people/users?{query}")).send().await.unwrap();
        assert_eq!(refusal(answer).await, (400, "invalid_request".to_owned()), "{query}");
    }
    assert_eq!(get(&server, "users/3").await["first_name"], "Clara", "nothing was changed");
}

#[tokio::test]
async fn people_are_for_administrators_of_their_own_tenant() {
    let server = TestServer::open().await;
    let id = server.app.clock.new_id();
    server.app.administration_store.ensure_tenant(id, "other".to_owned(), server.app.clock.now()).await.unwrap();
    let request = json!({"tenant": "other", "scopes": ["admin"]});
    let made = body(server.operator(Method::POST, "/api/keys").json(&request).send().await.unwrap()).await;
    let foreign = made["key"].as_str().unwrap();
    let (chat, admin) = (server.key(Some(3), &["chat", "tools", "read", "approve"]).await, server.key(Some(1), &["admin"]).await);
    let routes = [
        (Method::GET, "users"),
        (Method::POST, "users"),
        (Method::GET, "users/3"),
        (Method::PATCH, "users/3"),
        (Method::DELETE, "users/3"),
        (Method::PUT, "users/3/roles"),
        (Method::GET, "users/3/may/get_requests"),
        (Method::GET, "roles"),
        (Method::POST, "roles"),
        (Method::PATCH, "roles/3"),
        (Method::PUT, "roles/3/permissions"),
        (Method::DELETE, "branches/1"),
    ];
    for (method, path) in routes {
        let path = format!("/api/people/{path}");
        let sent = server.with_key(&chat, method.clone(), &path).json(&json!({})).send().await.unwrap();
        assert_eq!(refusal(sent).await, (403, "forbidden".to_owned()), "{method} {path}");
        if path.contains("/3") || path.contains("/1") {
            let request = if path.ends_with("roles") { json!({"role_ids": []}) } else { json!({}) };
            let request = if path.ends_with("permissions") { json!([]) } else { request };
            let sent = server.with_key(foreign, method.clone(), &path).json(&request).send().await.unwrap();
            assert_eq!(refusal(sent).await, (404, "not_found".to_owned()), "{method} {path}");
        }
    }
    let list = body(server.with_key(foreign, Method::GET, "/api/people/users").send().await.unwrap()).await;
    assert_eq!(list, json!({"users": [], "next_after": null}));
    let own = body(server.with_key(&admin, Method::GET, "/api/people/users").send().await.unwrap()).await;
    assert_eq!(own["users"].as_array().unwrap().len(), 6);
}

#[tokio::test]
async fn may_and_the_row_of_a_call_name_the_same_role() {
    let server = TestServer::open().await;
    let may = async |path: &str| get(&server, &format!("users/{path}")).await;
    let both = "table_requests:table:both";
    let answer = |allowed, role: Value, scope: Value, reason: &str| {
        let permission = if role.is_null() { Value::Null } else { json!(both) };
        json!({"allowed": allowed, "needs": "table_requests:table:read", "role": role, "permission": permission, "scope": scope,
            "reason": reason})
    };
    let employee = format!("The role employee has {both} with scope own");
    assert_eq!(may("3/may/get_requests").await, answer(true, json!("employee"), json!("own"), &format!("{employee}.")));
    let own_only = format!("{employee}, which covers the user's own rows only.");
    assert_eq!(may("3/may/get_requests?user_id=4").await, answer(false, json!("employee"), json!("own"), &own_only));
    assert_eq!(may("3/may/get_requests?user_id=3").await["allowed"], true, "their own rows");
    let lead = format!("The role lead has {both} with scope branch");
    let same = format!("{lead}, and user 3 is in the same branch.");
    assert_eq!(may("2/may/get_requests?user_id=3").await, answer(true, json!("lead"), json!("branch"), &same));
    let another = format!("{lead}, and user 4 is not in the same branch.");
    assert_eq!(may("2/may/get_requests?user_id=4").await, answer(false, json!("lead"), json!("branch"), &another));
    let none = "The role guest does not have table_requests:table:read.";
    assert_eq!(may("5/may/get_requests").await, answer(false, Value::Null, Value::Null, none));
    assert_eq!(may("3/may/test_echo").await["reason"], "test_echo needs no permission.");
    let profiles = may("3/may/get_user_info?user_id=4").await;
    assert_eq!((&profiles["allowed"], &profiles["needs"]), (&json!(false), &json!("table_users:table:read")));
    assert_eq!(may("3/may/get_user_info").await["allowed"], true);

    // Of two roles the wider one decides.
    assert_eq!(send(&server, Method::PUT, "users/6/roles", json!({"role_ids": [3, 2]})).await.status(), 200);
    let decided = may("6/may/get_requests").await;
    assert_eq!((&decided["role"], &decided["scope"]), (&json!("lead"), &json!("branch")));
    let invoke = async |user: i64, input: Value| {
        let request = server.as_user(user, Method::POST, "/api/tools/get_requests/invoke").json(&json!({"input": input}));
        let answer = body(request.send().await.unwrap()).await;
        let calls = body(server.as_user(user, Method::GET, "/api/tool-calls?order=desc&limit=1").send().await.unwrap()).await;
        let path = format!("/api/tool-calls/{}/explain", calls["tool_calls"][0]["id"].as_str().unwrap());
        let explained = body(server.as_user(user, Method::GET, &path).send().await.unwrap()).await;
        (answer["status"].clone(), explained["permission"].clone())
    };
    let row = json!({"needs": "table_requests:table:read", "granted": true, "role": "lead", "permission": both, "scope": "branch"});
    assert_eq!(invoke(6, json!({"userId": 4})).await, (json!("ok"), row));
    let row = json!({"needs": "table_requests:table:read", "granted": false, "role": null, "permission": null, "scope": null});
    assert_eq!(invoke(5, json!({})).await, (json!("error"), row));

    assert_eq!(send(&server, Method::DELETE, "users/6", json!({})).await.status(), 204);
    assert_eq!(may("6/may/get_requests").await["reason"], "User 6 is not active, so nothing runs for them.");
    for path in ["users/99/may/get_requests", "users/3/may/get_requests?user_id=99"] {
        let answer = server.operator(Method::GET, &format!("/api/people/{path}")).send().await.unwrap();
        assert_eq!(refusal(answer).await, (404, "not_found".to_owned()), "{path}");
    }
    let unknown = server.operator(Method::GET, "/api/people/users/3/may/nothing").send().await.unwrap();
    assert_eq!(refusal(unknown).await, (404, "unknown_tool".to_owned()));
}

#[tokio::test]
async fn the_streams_of_a_deactivated_user_end() {
    let server = TestServer::open().await;
    let conversation = server.conversation(3).await;
    let path = format!("/api/conversations/{conversation}/events");
    let follow = async |user: i64, scopes: &[&str]| {
        let key = server.key(Some(user), scopes).await;
        let request = server.with_key(&key, Method::GET, &path).header("accept", "text/event-stream").header("last-event-id", "1000");
        Stream::new(request.send().await.unwrap())
    };
    let (mut ends, stays) = (follow(3, &["read"]).await, follow(1, &["admin"]).await);
    assert_eq!(send(&server, Method::DELETE, "users/3", json!({})).await.status(), 204);
    // The interval of the check is bounded where it is defined. Without the check the stream stays open, however busy the machine is.
    let ended = tokio::time::timeout(std::time::Duration::from_secs(30), async { while ends.response.chunk().await.unwrap().is_some() {} });
    ended.await.unwrap();
    let mut response = stays.response;
    let open = tokio::time::timeout(std::time::Duration::from_millis(100), async { while response.chunk().await.unwrap().is_some() {} });
    assert!(open.await.is_err(), "the stream of another user is open");
}

#[tokio::test]
async fn a_call_of_a_user_who_was_deactivated_meanwhile_is_refused() {
    let server = TestServer::open().await;
    let gate = Gate::before_head();
    server.model.script(vec![Reply::calls(vec![call("get_requests", json!({}))]).gate(gate.clone()), Reply::text("done")]);
    let mut stream = server.stream(3, json!({"message": "my requests"})).await;
    gate.reached().await;
    assert_eq!(send(&server, Method::DELETE, "users/3", json!({})).await.status(), 204);
    gate.open();
    let events = stream.until("final").await;
    let finished = events.iter().find(|event| event.name == "tool_finished").unwrap();
    assert_eq!(finished.data["status"], "failed");
    let path = format!("/api/tool-calls/{}", finished.data["job_id"].as_str().unwrap());
    let row = body(server.operator(Method::GET, &path).send().await.unwrap()).await;
    assert_eq!((&row["error_code"], &row["permission"]["granted"]), (&json!("permission_denied"), &json!(false)));
}

/// What `may` says is what a call does, for every pair of users.
#[tokio::test]
async fn may_agrees_with_the_calls() {
    let server = TestServer::open().await;
    assert_eq!(send(&server, Method::PATCH, "users/4", json!({"branch_id": null, "role_ids": [2]})).await.status(), 200);
    let (mut allowed, mut denied) = (0, 0);
    for tool in ["get_requests", "get_todos", "get_worktime", "get_user_info"] {
        for user in 1..=6 {
            for other in 1..=6 {
                let request = server.as_user(user, Method::POST, &format!("/api/tools/{tool}/invoke"));
                let answer = body(request.json(&json!({"input": {"userId": other}})).send().await.unwrap()).await;
                let may = get(&server, &format!("users/{user}/may/{tool}?user_id={other}")).await;
                assert_eq!(may["allowed"] == true, answer["status"] == "ok", "{tool} {user} {other}: {may} {answer}");
                assert!(answer["status"] == "ok" || answer["error"]["code"] == "permission_denied", "{answer}");
                if may["allowed"] == true { allowed += 1 } else { denied += 1 }
            }
        }
    }
    assert!(allowed > 40 && denied > 40, "{allowed} allowed, {denied} denied");
}
