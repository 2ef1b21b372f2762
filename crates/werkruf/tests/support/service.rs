//! An HTTP service behind operator tools. Each path answers with a fixed JSON body, and requests are counted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use serde_json::Value;
use tokio::net::TcpListener;

pub struct Service {
    url: String,
    received: Arc<Mutex<HashMap<String, usize>>>,
}

impl Service {
    /// Starts a service that answers each path with its body.
    #[expect(clippy::disallowed_methods, reason = "the task ends with the runtime of the test")]
    pub async fn start(bodies: &[(&str, Value)]) -> Self {
        let bodies: HashMap<String, Value> = bodies.iter().map(|(path, body)| (format!("/{path}"), body.clone())).collect();
        let received: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let counted = Arc::clone(&received);
        let answer = move |request: Request| {
            let path = request.uri().path().to_owned();
            let body = bodies.get(&path).cloned().unwrap_or_default();
            *counted.lock().unwrap().entry(path).or_default() += 1;
            async move { axum::Json(body).into_response() }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        Self { url, received }
    }

    /// How many requests came to this path.
    pub fn received(&self, path: &str) -> usize {
        self.received.lock().unwrap().get(&format!("/{path}")).copied().unwrap_or_default()
    }

    /// The declaration of a tool with the name of its path. `more` are further lines.
    pub fn tool(&self, name: &str, effect: &str, more: &str) -> String {
        format!(
            "[[tools]]\nname = '{name}'\ndescription = 'Does {name}.'\nurl = '{}/{name}'\neffect = '{effect}'\npermission = 'none'\n\
             parameters = '{{\"type\": \"object\"}}'\n{more}\n",
            self.url
        )
    }
}
