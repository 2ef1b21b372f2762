//! Runs the Python tool of `docs/writing-a-tool.md` as the page describes and calls it through the page's declaration.

#[cfg(test)]
mod support;

#[cfg(test)]
mod doc;

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use serde_json::json;
    use tempfile::TempDir;
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::process::{Child, Command};
    use werkruf_contract::{Clock, Happened, ToolObject};
    use werkruf_llm::{HttpLimits, http_client};
    use werkruf_tools::{HttpTool, HttpToolConfig};

    use crate::doc::block;
    use crate::support::invocation;

    #[derive(serde::Deserialize)]
    struct File {
        tools: Vec<HttpToolConfig>,
    }

    /// Starts the page's program on a port that the system chooses.
    async fn started() -> (TempDir, Child, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rooms.py");
        std::fs::write(&file, block("python")).unwrap();
        let mut child = Command::new("python3")
            .arg(&file)
            .arg("0")
            .env("ROOMS_SECRET", "geheim")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let line = BufReader::new(child.stdout.take().unwrap()).lines().next_line().await.unwrap().unwrap();
        let port = line.rsplit(' ').next().unwrap().to_owned();
        (folder, child, port)
    }

    /// The page's declaration with this port and secret.
    fn declared(port: &str, secret: &'static str) -> HttpTool {
        let text = block("toml").replace(":9000", &format!(":{port}"));
        let file: File = toml::from_str(&text).unwrap();
        let [config] = <[HttpToolConfig; 1]>::try_from(file.tools).unwrap();
        let env = move |name: &str| (name == "ROOMS_SECRET").then(|| secret.to_owned());
        HttpTool::new(config, http_client(&HttpLimits::default()).unwrap(), &Clock::system(0), &env).unwrap()
    }

    #[tokio::test]
    async fn the_python_tool_works() {
        let (_folder, _child, port) = started().await;
        let tool = declared(&port, "geheim");
        assert!(!tool.spec().answers_directly, "the model writes the answer");
        let args = tool.normalize(json!({"room": "Aachen"})).unwrap();
        assert_eq!(args, json!({"room": "Aachen", "hours": 1}), "the default is filled in");

        let first = tool.call(args.clone(), invocation()).await.unwrap();
        assert_eq!(first.data, json!({"booking": 1, "user": "3", "message": "Room Aachen is yours for 1 h."}));
        assert_eq!(first.message.as_deref(), Some("Room Aachen is yours for 1 h."));
        assert_eq!(first.state_patch.clone().map(serde_json::Value::Object), Some(json!({"last_room": "Aachen"})));

        let mut again = invocation();
        again.attempt = 2;
        assert_eq!(tool.call(args.clone(), again).await.unwrap(), first, "the same key books nothing new");
        let mut other = invocation();
        other.idempotency_key = "key-2".to_owned();
        assert_eq!(tool.call(args, other).await.unwrap().data["booking"], 2);
    }

    #[tokio::test]
    async fn the_python_tool_refuses_a_wrong_signature() {
        let (_folder, _child, port) = started().await;
        let failure = declared(&port, "something else").call(json!({"room": "Aachen", "hours": 1}), invocation()).await.unwrap_err();
        assert_eq!((failure.code.as_ref(), failure.upstream_status, failure.happened), ("upstream_refused", Some(401), Happened::No));
    }
}
