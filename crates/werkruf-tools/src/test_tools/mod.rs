//! Tools for tests of the server itself: they panic, echo, wait, return large results and report progress.
//!
//! Registered only with `WERKRUF_TEST_TOOLS=1` on a loopback bind. All have effect `read` and need no permission.

mod bytes;
mod echo;
mod panic;
mod progress;
mod sleep;

use std::sync::Arc;

use werkruf_contract::{ToolObject, Typed};

/// `test_panic`, `test_echo`, `test_sleep`, `test_bytes` and `test_tool_with_progress`, ready for the registry.
pub fn test_tools() -> Vec<Arc<dyn ToolObject>> {
    vec![
        Arc::new(Typed::new(panic::TestPanic)),
        Arc::new(Typed::new(echo::TestEcho)),
        Arc::new(Typed::new(sleep::TestSleep)),
        Arc::new(Typed::new(bytes::TestBytes)),
        Arc::new(Typed::new(progress::TestProgress)),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use werkruf_contract::{Effect, Shape, ToolObject};

    use super::test_tools;
    use crate::support::invocation;

    fn tool(name: &str) -> Arc<dyn ToolObject> {
        test_tools().into_iter().find(|tool| tool.spec().name == name).unwrap()
    }

    async fn data(name: &str, args: Value) -> Value {
        let tool = tool(name);
        let args = tool.normalize(args).unwrap();
        tool.call(args, invocation()).await.unwrap().data
    }

    #[test]
    fn all_are_reads_without_a_permission() {
        let tools = test_tools();
        let names: Vec<&str> = tools.iter().map(|tool| tool.spec().name.as_ref()).collect();
        assert_eq!(names, ["test_panic", "test_echo", "test_sleep", "test_bytes", "test_tool_with_progress"]);
        for tool in &tools {
            assert_eq!((tool.spec().effect, &tool.spec().permission), (Effect::Read, &None));
            assert!(Shape::compile(tool.parameters()).is_ok());
        }
    }

    #[tokio::test]
    async fn echo_returns_any_json() {
        for value in [json!(null), json!(3), json!("ä"), json!([1, {"a": false}]), json!({"deep": {"er": 1.5}})] {
            assert_eq!(data("test_echo", json!({"value": value})).await, json!({"value": value}));
        }
    }

    #[tokio::test]
    async fn sleep_waits_as_long_as_requested() {
        let before = tokio::time::Instant::now();
        assert_eq!(data("test_sleep", json!({"ms": 20})).await, json!({"slept_ms": 20}));
        assert!(before.elapsed().as_millis() >= 20);
    }

    #[tokio::test]
    async fn bytes_returns_the_requested_size_up_to_the_limit() {
        assert_eq!(data("test_bytes", json!({"n": 0})).await["text"], json!(""));
        assert_eq!(data("test_bytes", json!({"n": 100_000})).await["text"].as_str().unwrap().len(), 100_000);
        let failure = tool("test_bytes").call(json!({"n": 67_108_865}), invocation()).await.unwrap_err();
        assert_eq!(failure.code, "invalid_arguments");
    }

    #[tokio::test]
    #[should_panic(expected = "test_panic was called")]
    async fn panic_panics() {
        let _ = tool("test_panic").call(json!({}), invocation()).await;
    }

    #[test]
    fn a_wrong_argument_is_a_violation() {
        assert!(tool("test_sleep").normalize(json!({"ms": "soon"})).is_err());
        assert!(tool("test_echo").normalize(json!({})).is_err());
    }
}
