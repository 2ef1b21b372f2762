//! `werkruf usage` with the real binary.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{FakeModel, Reply};

use crate::support::{CommandOutput, TestFolder};

/// A folder with two requests of user 1: one of 750 and 150 tokens, one of 1000 and 1.
async fn two_requests() -> (TestFolder, FakeModel) {
    let model = FakeModel::start().await;
    model.script(vec![Reply::text("One.").usage(750, 150).request_id("req_1"), Reply::text("Two.").usage(1000, 1).request_id("req_2")]);
    let folder =
        TestFolder::new().with("OPENAI_BASE_URL", &model.base_url()).with("OPENAI_MODEL", "gpt-5").with("WERKRUF_SAMPLE_DATA", "on");
    folder.file("werkruf.toml", "[workspace]\n");
    for _ in 0..2 {
        run(&folder, &["chat", "Hello", "--user", "1"]).exits(0);
    }
    (folder, model)
}

fn run(folder: &TestFolder, arguments: &[&str]) -> CommandOutput {
    tokio::task::block_in_place(|| folder.run(arguments))
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_shown_as_a_table_json_and_csv() {
    let (folder, _model) = two_requests().await;
    let sums = run(&folder, &["usage", "--by", "model", "--json"]).exits(0).json();
    let row = json!({"key": "gpt-5", "calls": 2, "tokens_prompt": 1750, "tokens_cached": 0, "tokens_completion": 151, "tokens_reasoning": 0,
        "tokens_total": 1901, "cost_nano_usd": 3_697_500, "unpriced_calls": 0, "estimated_calls": 0});
    assert_eq!((&sums["group_by"], &sums["rows"]), (&json!("model"), &json!([row])));
    let csv = run(&folder, &["usage", "--by", "user", "--csv"]).exits(0).stdout;
    let heading = "key,calls,tokens_prompt,tokens_cached,tokens_completion,tokens_reasoning,tokens_total,cost_nano_usd,unpriced_calls,estimated_calls";
    assert_eq!(csv, format!("{heading}\n1,2,1750,0,151,0,1901,3697500,0,0\n"));
    let table = run(&folder, &["usage", "--by", "model"]).exits(0).stdout;
    assert!(table.contains("MODEL") && table.contains("0.003698") && table.contains("██") && table.contains("total"), "{table}");
    let narrow = TestFolder::run(&folder.with("COLUMNS", "40"), &["usage"]).exits(0).stdout;
    assert!(narrow.lines().all(|line| line.chars().count() <= 40) && narrow.contains("1901"), "{narrow}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_time_and_wrong_options_are_told() {
    let (folder, _model) = two_requests().await;
    assert_eq!(run(&folder, &["usage", "--from", "2020-01-01", "--to", "2020-02-01"]).exits(0).stdout.trim(), "No requests in this time.");
    assert_eq!(run(&folder, &["usage", "--from", "noon", "--json"]).exits(1).error()["code"], "invalid_request");
    run(&folder, &["usage", "--by", "hour"]).exits(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_providers_export_is_compared() {
    let (folder, _model) = two_requests().await;
    let requests = run(&folder, &["usage", "reconcile", "missing.csv"]).exits(1);
    assert!(requests.stderr.contains("missing.csv"), "{requests:?}");
    let time = time_of_last_request(&folder);
    let line = |id: &str, input: i64, output: i64, cost: &str| {
        let mut line = json!({"timestamp": time, "model": "gpt-5", "input_tokens": input, "cached_tokens": 0, "output_tokens": output});
        line["cost_usd"] = serde_json::from_str(cost).unwrap();
        if !id.is_empty() {
            line["request_id"] = json!(id);
        }
        format!("{line}\n")
    };
    let kinds = |report: &Value| {
        report["differences"].as_array().unwrap().iter().map(|found| found["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let compare = |text: String, code: i32| {
        folder.file("export.jsonl", &text);
        run(&folder, &["usage", "reconcile", "export.jsonl", "--json"]).exits(code).json()
    };
    let (first, second) = (line("req_1", 750, 150, "0.0024375"), line("req_2", 1000, 1, "0.00126"));
    let same = compare(format!("{first}{second}"), 0);
    assert_eq!(
        (&same["matched"], &same["cost_nano_usd_here"], &same["cost_nano_usd_there"]),
        (&json!(2), &json!(3_697_500), &json!(3_697_500))
    );
    // Without an id, by model and minute.
    let without_id = compare(format!("{first}{}", line("", 1000, 1, "0.00126")), 0);
    assert_eq!(without_id["matched"], 2);
    assert_eq!(kinds(&compare(first.clone(), 1)), ["missing_there"]);
    let more = compare(format!("{first}{second}{}", line("req_3", 5, 5, "0.1")), 1);
    assert_eq!(
        (kinds(&more), &more["differences"][0]["request_id"], &more["differences"][0]["here"]),
        (vec!["missing_here".to_owned()], &json!("req_3"), &Value::Null)
    );
    let dearer = compare(format!("{}{}", line("req_1", 751, 150, "0.0024375"), line("req_2", 1000, 1, "0.00127")), 1);
    assert_eq!(kinds(&dearer), ["tokens_differ", "price_differs"]);
    let text = run(&folder, &["usage", "reconcile", "export.jsonl"]).exits(1).stdout;
    assert!(text.contains("tokens differ") && text.contains("0.001270 USD") && text.contains("2 requests matched"), "{text}");
    folder.file("export.csv", &format!("timestamp,request_id,model,input_tokens,cached_tokens,output_tokens,cost_usd\n{time},req_1,gpt-5,750,0,150,0.0024375\n{time},req_2,gpt-5,1000,0,1,0.00126\n"));
    assert!(run(&folder, &["usage", "reconcile", "export.csv"]).exits(0).stdout.starts_with("2 requests matched; 0 missing here"));
    folder.file("export.csv", "timestamp,model\n1,m\n");
    assert_eq!(run(&folder, &["usage", "reconcile", "export.csv", "--json"]).exits(1).error()["code"], "unreadable");
}

/// The time of the last stored request, as a report without any line names it.
fn time_of_last_request(folder: &TestFolder) -> String {
    folder.file("empty.jsonl", "");
    let report =
        run(folder, &["usage", "reconcile", "empty.jsonl", "--from", "2020-01-01", "--to", "2100-01-01", "--json"]).exits(1).json();
    report["differences"][1]["at"].as_str().unwrap().to_owned()
}
