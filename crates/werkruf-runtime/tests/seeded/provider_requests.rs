//! Calls that the model's provider runs itself once they are approved: the model asks, receives the answer, and carries out what was approved.

use werkruf_contract::CallKind;
use werkruf_llm::{Answer, Delta, ModelRequest, ProviderItem, ToolCall};

use crate::model::{Model, Script};
use crate::mutant::Mutant;

/// The tool of the provider.
const TOOL: &str = "transfer";

impl Model {
    /// Sometimes adds requests for permission to the calls of a response.
    pub fn add_requests(&self, answer: &mut Answer) {
        let rng = &self.world.rng;
        if !rng.permille(120) {
            return;
        }
        for _ in 0..rng.between(1, 2) {
            self.world.count("calls that the provider asked for");
            answer.calls.push(ToolCall {
                kind: CallKind::Mcp,
                item_id: Some(format!("mcpr_{}", rng.below(1_000_000_000))),
                call_id: None,
                output_index: u32::try_from(answer.calls.len()).unwrap(),
                name: TOOL.to_owned(),
                arguments: format!("{{\"n\":{}}}", rng.below(6)),
                status: None,
                server_label: Some("bank".to_owned()),
            });
        }
        // The provider gets its own request back with the answer to it.
        answer.carry = Some(serde_json::json!({}));
    }

    /// Receives the approvals of a request, and carries out most of them. Returns the requests that were carried out.
    pub fn receive_approvals(&self, request: &ModelRequest) -> Vec<String> {
        let rng = &self.world.rng;
        let mut ran = Vec::new();
        for answer in request.approvals.iter().filter(|answer| answer.approve) {
            self.world.count("approvals that the provider received");
            let times = if self.world.mutant == Mutant::ApprovalRepeated { 2 } else { 1 };
            let runs = rng.permille(800);
            self.world.observed.lock().unwrap().record_approval(&answer.call_id, times, runs);
            if runs {
                ran.push(answer.call_id.clone());
            }
        }
        ran
    }

    /// Adds what was carried out to the response; returns how many items it has then.
    pub fn add_granted(&self, script: &mut Script, answer: &mut Answer, ran: Vec<String>, items: u32) -> u32 {
        let rng = &self.world.rng;
        let mut output_index = items;
        for request in ran {
            let started = ProviderItem {
                kind: "mcp_call".to_owned(),
                item_id: Some(format!("mcp_{}", rng.below(1000))),
                name: Some(TOOL.to_owned()),
                output_index,
                approval_request_id: Some(request),
                ..ProviderItem::default()
            };
            let error = rng.permille(200).then(|| "down".into());
            let ended = ProviderItem { arguments: Some("{}".to_owned()), output: Some("done".into()), error, ..started.clone() };
            answer.items.push(ended.clone());
            if rng.permille(850) {
                // The item that starts does not always name its request.
                let named = started.approval_request_id.clone().filter(|_| rng.permille(700));
                script.push_back((self.gap(), Ok(Delta::ItemStarted(Box::new(ProviderItem { approval_request_id: named, ..started })))));
                if rng.permille(850) {
                    script.push_back((self.gap(), Ok(Delta::ItemFinished(Box::new(ended)))));
                }
            }
            output_index += 1;
        }
        output_index
    }
}
