//! Approvals over a channel: who is asked, who is told.

use serde_json::Value;
use werkruf_contract::ApprovalStatus;
use werkruf_runtime::Refusal;
use werkruf_store::{Approvals, ChannelStore, NewContact, Outbox, OutboxFilter, OutboxRow, Page};

use crate::office::{ADA, BEN, CLEO, Office, TENANT};

fn body(row: &OutboxRow) -> Value {
    serde_json::from_str(&row.body).unwrap()
}

#[tokio::test]
async fn approvers_get_buttons_the_first_decision_counts_and_the_others_are_told() {
    let office = Office::open().await;
    office.write("pay", Office::pay(), None).await;
    let rows = office.settled(4).await;
    let asked: Vec<&OutboxRow> = rows.iter().filter(|row| row.approval_id.is_some()).collect();
    let addresses: Vec<&str> = asked.iter().map(|row| row.recipient.address.as_str()).collect();
    assert_eq!(addresses, [BEN, CLEO], "everybody with the role, but not whoever asked");
    let (ben, cleo, approval) = (body(asked[0]), body(asked[1]), asked[0].approval_id.unwrap());
    assert_eq!(
        (ben["text"].as_str().unwrap(), cleo["text"].as_str().unwrap()),
        ("Ada L bittet um: pay\nn: 5", "Ada L asks for: pay\nn: 5")
    );
    assert_eq!((ben["approve"].as_str().unwrap(), cleo["deny"].as_str().unwrap()), ("Genehmigen", "Deny"));
    assert_eq!(office.channel.texts(ADA), ["This needs an approval by boss: pay.", "You get an answer here as soon as it is decided."]);
    assert_eq!(office.notifications().await, ["approval_required"]);
    let found = {
        let buttons = OutboxFilter { user_id: Some("3".to_owned()), ..OutboxFilter::of_approval(approval) };
        office.store.outbox(TENANT, buttons, Page::default()).await.unwrap()
    };
    assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), [asked[1].id], "the buttons of Cleo");

    // Whoever has not the role cannot decide, and the first decision counts.
    let (ada, ben, cleo) = (office.principal("1").await, office.principal("2").await, office.principal("3").await);
    let refused = office.runtime.decide_as(&ada, "fake:491701", approval, true).await;
    assert!(matches!(refused, Err(Refusal::NotTheApprover { .. })), "{refused:?}");
    let decided = office.runtime.decide_as(&cleo, "fake:491703", approval, true).await.unwrap();
    assert_eq!((decided.status, decided.decided_by.as_deref()), (ApprovalStatus::Approved, Some("3")));
    let late = office.runtime.decide_as(&ben, "fake:491702", approval, false).await;
    assert!(matches!(late, Err(Refusal::Conflict { code: "already_decided", .. })), "{late:?}");

    office.rows_once(|rows| rows.len() >= 7 && rows.iter().all(|row| row.external_id.is_some())).await;
    assert_eq!(office.channel.texts(BEN).last().unwrap(), "Cleo L hat genehmigt: pay");
    assert_eq!(office.channel.texts(CLEO).len(), 1, "who decided knows");
    assert_eq!(office.channel.texts(ADA)[2..], ["Done.", "The tool pay answered without a text."]);
    let row = office.store.approval(TENANT, approval).await.unwrap().unwrap();
    assert_eq!(row.status, ApprovalStatus::Approved);
    assert_eq!(office.notifications().await, ["approval_required", "turn_finished"]);
}

#[tokio::test]
async fn buttons_go_to_addresses_that_are_still_theirs() {
    for (contacts, expected) in [
        // A number that Ben had before, and an account that the channel has no more.
        (vec![("2", "desk", "491799"), ("3", "closed", CLEO)], [("desk", BEN), ("desk", CLEO)]),
        (vec![("2", "front", BEN), ("2", "closed", BEN), ("3", "front", ADA)], [("front", BEN), ("desk", CLEO)]),
    ] {
        let office = Office::open().await;
        for (user_id, account, address) in contacts {
            let now = office.clock.now();
            let contact = NewContact {
                tenant_id: TENANT,
                channel: "fake".to_owned(),
                account: account.to_owned(),
                user_id: user_id.to_owned(),
                address: address.to_owned(),
                inbound_at: now,
                conversation_id: office.clock.new_id(),
                title: String::new(),
                assistant: "default".to_owned(),
                now,
            };
            office.store.contact(contact).await.unwrap();
        }
        office.write("pay", Office::pay(), None).await;
        let rows = office.settled(4).await;
        let asked = rows.iter().filter(|row| row.approval_id.is_some());
        let places: Vec<_> = asked.map(|row| (row.recipient.account.as_str(), row.recipient.address.as_str())).collect();
        assert_eq!(places, expected);
    }
}
