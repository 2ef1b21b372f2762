//! One story for every database, told only through the traits. Each chapter takes a fresh [`World`].
//!
//! A database folder runs it by handing its constructor, an async function, to [`tell!`].

mod chapters_approvals;
mod chapters_clients;
mod chapters_heard;
mod chapters_knowledge;
mod chapters_people;
mod chapters_provider_accounts;
mod chapters_retention;
mod chapters_reuse;
mod chapters_streams;
mod chapters_turns;
mod chapters_workspace;
mod world;

pub(crate) use crate::Store;
pub(crate) use chapters_approvals::*;
pub(crate) use chapters_clients::*;
pub(crate) use chapters_heard::*;
pub(crate) use chapters_knowledge::*;
pub(crate) use chapters_people::*;
pub(crate) use chapters_provider_accounts::*;
pub(crate) use chapters_retention::*;
pub(crate) use chapters_reuse::*;
pub(crate) use chapters_streams::*;
pub(crate) use chapters_turns::*;
pub(crate) use chapters_workspace::*;
pub(crate) use world::{Running, World};

/// One test per chapter, each on a store of its own. Every database tells all of them.
macro_rules! tell {
    ($make:path) => {
        $crate::story::chapters! { $make:
            a_turn_is_stored_in_four_commits,
            a_call_of_the_provider_ends_with_what_it_said_last,
            a_step_that_is_given_up_is_no_committed_step,
            a_conversation_keeps_counts_and_its_summary,
            a_second_message_waits_for_its_place,
            a_lease_of_another_owner_makes_the_turn_wait,
            a_turn_that_was_left_is_gone_on_with_before_another_begins,
            the_inbox_knows_a_second_copy,
            only_the_owner_finds_a_conversation,
            a_fenced_write_changes_nothing,
            terminal_rows_never_move,
            an_attempt_leaves_a_row_and_the_call_goes_on,
            state_is_merged_and_null_clears,
            many_turns_write_at_once,
            a_cancel_is_a_wish_the_owner_hears,
            a_clients_results_take_their_places,
            a_client_is_known_by_what_it_has_seen,
            what_a_client_takes_back_is_marked_once_and_kept,
            a_turn_waits_for_a_word_and_goes_on,
            a_word_comes_in_time_or_not_at_all,
            approvals_are_listed_by_role_status_and_turn,
            a_conversation_is_deleted_whole,
            a_turn_needs_no_conversation,
            a_result_is_reusable_until_the_world_changes,
            an_unknown_outcome_keeps_its_key,
            ids_are_taken_per_conversation,
            lists_page_by_id_both_ways,
            a_prefix_finds_its_ids,
            text_is_kept_under_the_lease_until_it_is_a_row,
            a_bite_is_bounded_by_rows_and_bytes,
            a_turn_that_waits_is_canceled_and_its_message_kept,
            a_log_loses_its_beginning_and_never_gets_a_hole,
            a_long_log_is_forgotten_in_batches,
            old_messages_go_in_whole_turns,
            a_turn_that_spoke_last_after_others_keeps_them,
            what_is_not_over_stays,
            calls_go_with_all_that_is_theirs,
            an_empty_conversation_goes_and_bills_stay_for_their_time,
            a_long_conversation_is_swept_in_batches,
            two_roles_give_the_widest_scope,
            a_bad_batch_is_not_written_at_all,
            a_guest_is_made_once,
            a_token_decides_the_roles_until_the_next_one,
            what_a_token_said_ends_with_it,
            writing_a_person_ends_what_a_token_said,
            keys_are_found_by_digest_until_deleted,
            tenants_and_settings_are_remembered,
            a_reach_never_shows_more_than_its_grant,
            work_is_filtered_ordered_and_cut,
            worktimes_are_those_that_overlap,
            articles_are_found_by_words_tags_and_branch,
            an_import_replaces_what_it_names_and_nothing_else,
            external_ids_lead_to_one_person,
            a_batch_with_faults_tells_all_and_writes_nothing,
            documents_come_change_and_go,
            every_index_follows_its_rows,
            many_writers_make_one_log,
            a_chunk_has_one_vector_of_one_model,
            knowledge_is_billed_to_its_turn,
            a_quota_allows_exactly_its_calls,
            what_a_provider_says_is_left_counts_too,
            a_token_is_kept_and_replaced,
            one_of_many_fetches_a_token,
            an_answer_is_kept_for_its_time_and_its_tenant,
        }
    };
}

macro_rules! chapters {
    ($make:path: $($chapter:ident),+ $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $chapter() {
            let (store, clock, _kept) = $make().await;
            $crate::story::$chapter($crate::story::World::new(store, clock)).await;
        })+
    };
}
pub(crate) use {chapters, tell};
