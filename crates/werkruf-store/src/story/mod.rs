//! Shared tests of the store traits, run on every database. Each test gets a fresh [`World`].
//!
//! A database folder runs all of them by passing its constructor, an async function, to [`tell!`].

mod addresses;
mod alerts;
mod approvals;
mod audit;
mod budget_changes;
mod budgets;
mod client_conversations;
mod client_requests;
mod closer;
mod connections;
mod console;
mod diagnosis;
mod keys;
mod lists;
mod manage_people;
mod outbox;
mod outbox_again;
mod outbox_world;
mod people;
mod provider_calls;
mod provider_tokens;
mod retention;
mod reuse;
mod streams;
mod test_module;
mod tool_pins;
mod turns;
mod usage;
mod usage_statistics;
mod world;

pub(crate) use addresses::*;
pub(crate) use alerts::*;
pub(crate) use approvals::*;
pub(crate) use audit::*;
pub(crate) use budget_changes::*;
pub(crate) use budgets::*;
pub(crate) use client_conversations::*;
pub(crate) use client_requests::*;
pub(crate) use closer::TestCloser;
pub(crate) use connections::*;
pub(crate) use console::*;
pub(crate) use diagnosis::*;
pub(crate) use keys::*;
pub(crate) use lists::*;
pub(crate) use manage_people::*;
pub(crate) use outbox::*;
pub(crate) use outbox_again::*;
pub(crate) use outbox_world::{fill_outbox, held_rows_are_released};
pub(crate) use people::*;
pub(crate) use provider_calls::*;
pub(crate) use provider_tokens::*;
pub(crate) use retention::*;
pub(crate) use reuse::*;
pub(crate) use streams::*;
pub(crate) use test_module::*;
pub(crate) use tool_pins::*;
pub(crate) use turns::*;
pub(crate) use usage::*;
pub(crate) use usage_statistics::*;
pub(crate) use world::{Running, World, event, to};

use crate::{AdministrationStore, ChannelStore, ClientStore, ConsoleStore, IdentityStore, MonitoringStore};

/// Every trait of a database.
pub(crate) trait Store:
    crate::Store + ConsoleStore + ClientStore + MonitoringStore + AdministrationStore + IdentityStore + ChannelStore
{
}

impl<S> Store for S where S: crate::Store + ConsoleStore + ClientStore + MonitoringStore + AdministrationStore + IdentityStore + ChannelStore
{}

/// Defines one test for each shared test function, each on its own store.
macro_rules! tell {
    ($make:path) => {
        $crate::story::cases! { $make:
            a_turn_is_stored_in_four_commits,
            a_provider_call_ends_with_its_latest_update,
            an_abandoned_step_is_no_committed_step,
            a_conversation_stores_token_counts_and_its_summary,
            a_second_message_waits_for_its_number,
            a_lease_of_another_owner_makes_the_turn_wait,
            an_abandoned_turn_is_resumed_before_another_starts,
            the_inbox_recognizes_a_second_copy,
            only_the_owner_finds_a_conversation,
            a_fenced_write_changes_nothing,
            terminal_rows_never_change,
            a_failed_attempt_is_stored_and_the_call_continues,
            state_is_merged_and_null_clears,
            many_turns_write_at_once,
            a_cancel_request_reaches_the_owner,
            a_clients_results_replace_their_placeholders,
            a_conversation_is_found_by_its_transcript_digest,
            turns_of_the_same_request_are_found_with_how_they_ended,
            a_withdrawn_client_request_is_marked_and_kept,
            metadata_of_a_conversation_is_replaced,
            items_are_appended_between_turns_only,
            a_result_for_a_call_without_a_turn_is_stored,
            messages_are_changed_together_or_not_at_all,
            a_copy_has_the_messages_up_to_its_turn,
            a_turn_waits_for_an_approval_and_continues,
            a_call_of_the_provider_waits_for_every_decision,
            whoever_asked_cannot_approve,
            an_expired_approval_cannot_be_decided,
            approvals_are_listed_by_role_status_and_turn,
            a_conversation_is_deleted_with_all_its_rows,
            a_turn_needs_no_conversation,
            a_result_is_reusable_until_a_later_effect,
            an_unknown_outcome_keeps_its_key,
            ids_are_taken_per_conversation,
            an_unknown_outcome_is_retried_once,
            lists_page_by_id_both_ways,
            a_page_ends_before_it_is_too_large,
            a_list_of_conversations_has_no_states,
            a_turn_says_when_its_conversation_was_used,
            an_id_is_found_by_its_beginning_or_end,
            partial_text_is_saved_under_the_lease_until_its_step_is_committed,
            a_read_of_events_is_bounded_by_rows_and_bytes,
            a_waiting_turn_is_canceled_and_its_message_kept,
            events_are_deleted_from_the_start_without_gaps,
            many_events_are_deleted_in_batches,
            events_of_a_turn_are_deleted_together,
            old_messages_are_deleted_in_whole_turns,
            a_turn_that_ended_after_later_turns_keeps_them,
            unfinished_work_is_not_deleted,
            only_a_message_after_an_unknown_outcome_settles_it,
            an_older_message_with_a_higher_number_changes_nothing,
            calls_are_deleted_with_their_rows,
            an_empty_conversation_is_deleted_and_usage_rows_stay,
            a_long_conversation_is_swept_in_batches,
            two_roles_give_the_widest_scope,
            a_bad_batch_is_not_written_at_all,
            a_guest_is_created_once,
            a_token_decides_the_roles_until_the_next_one,
            token_roles_end_with_the_token,
            importing_a_user_ends_token_roles,
            a_user_is_found_by_the_id_of_the_channel_or_by_phone,
            users_are_found_by_the_roles_they_have_now,
            the_address_of_a_user_who_is_not_active_is_nobodys,
            people_are_made_changed_and_listed,
            an_edit_with_faults_changes_nothing,
            a_deactivated_user_is_unknown_until_activated,
            a_role_or_branch_in_use_is_not_deleted,
            a_role_or_branch_that_rows_of_a_module_name_stays,
            a_role_that_a_valid_token_names_stays,
            edits_are_recorded_with_their_values,
            new_rows_at_once_get_different_ids,
            keys_are_found_by_digest_until_deleted,
            a_rotated_key_lives_no_longer_than_its_overlap,
            the_last_use_of_a_key_is_stored,
            names_without_a_role_are_unknown,
            a_link_becomes_one_session,
            a_holder_has_a_bounded_number_of_sessions,
            what_moved_is_found_by_id_state_and_name,
            tenants_and_settings_are_stored,
            acts_on_keys_are_recorded,
            an_act_of_the_server_has_its_own_chain,
            a_decision_and_a_changed_person_are_recorded,
            a_changed_entry_is_found,
            a_missing_entry_is_found,
            a_cut_off_entry_is_found,
            swapped_entries_are_found,
            a_head_of_another_chain_is_found,
            a_rewritten_head_is_found_by_its_signature,
            acts_at_once_make_a_chain_without_holes,
            usage_of_a_tool_belongs_to_its_turn,
            a_diagnosis_counts_what_waits_and_what_is_wrong,
            sums_stay_when_days_are_rolled_up_and_rows_deleted,
            expired_rows_of_a_module_are_deleted,
            rows_of_a_module_are_erased_with_their_person,
            a_token_is_stored_and_replaced,
            one_owner_at_a_time_fetches_a_token,
            a_changed_tool_is_noted_until_it_is_accepted,
            a_link_is_opened_once_and_finished_in_the_same_browser,
            a_link_is_tried_by_one_at_a_time_and_not_often,
            a_connection_belongs_to_one_person,
            a_login_that_is_finished_after_an_erasure_is_not_stored,
            links_that_have_expired_are_deleted,
            a_turn_writes_its_rows_with_parts,
            rows_of_a_lane_leave_in_order,
            several_claimers_keep_the_order,
            a_doubtful_row_is_sent_once_more_and_then_given_up,
            a_repeatable_row_is_repeated_until_it_is_exhausted,
            a_dead_part_ends_the_parts_of_its_turn,
            reports_only_move_forward,
            a_failed_report_kills_or_sends_again,
            an_item_without_a_turn_is_recorded_once,
            two_first_messages_at_once_get_one_conversation,
            old_rows_of_the_outbox_are_deleted,
            the_age_of_a_row_counts_from_its_first_attempt,
            only_the_process_that_sends_a_row_settles_it,
            a_row_that_arrived_after_all_brings_its_later_parts_back,
            a_failed_sending_does_not_hide_another_that_arrived,
            a_retry_starts_with_the_first_dead_part,
            what_a_process_is_sending_it_does_not_take_again,
            a_claim_takes_rows_of_one_account,
            arrived_notifications_expire,
            an_alert_is_open_once_and_told_once,
            an_alert_that_is_told_once_never_ends,
            processes_that_see_one_condition_tell_it_once,
            conditions_are_found_in_the_rows_of_all_tenants,
            alerts_are_listed_and_expire,
            a_budget_starts_with_what_was_used,
            a_request_counts_towards_all_its_budgets,
            a_request_counts_in_the_period_of_its_reservation,
            a_refused_turn_leaves_nothing,
            a_waiting_turn_reserves_nothing,
            an_estimate_counts_at_once_and_is_replaced,
            an_expired_reservation_is_released,
            a_turn_reserves_again_under_its_id,
            a_takeover_counts_the_lost_request,
            a_deleted_budget_is_not_counted_any_more,
            budgets_of_the_configuration_keep_their_counters,
            a_budget_of_many_lists_those_that_used_most,
            budgets_of_tenants_are_separate,
            acts_on_budgets_are_recorded,
            a_new_budget_counts_rows_of_processes_that_did_not_know_it,
            old_counters_are_deleted,
            a_person_is_erased_with_their_budgets,
            many_requests_at_once_stay_within_the_budget,
            counters_equal_the_rows_after_any_changes,
        }
    };
}

macro_rules! cases {
    ($make:path: $($case:ident),+ $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let (store, clock, _guard) = $make().await;
            $crate::story::$case($crate::story::World::new(store, clock)).await;
        })+
    };
}
pub(crate) use {cases, tell};
