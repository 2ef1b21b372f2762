//! Reads database rows into row types, with one definition for all databases. Each database has its own `Columns` type with the same
//! methods (`text`, `id`, `time_or_null`, …); a row is read from left to right, in the order of the column lists in this file.

mod foreign;
mod usage;

pub(crate) use foreign::foreign_readings;
pub(crate) use usage::usage_readings;

pub(crate) const CONVERSATION: &str = "id, tenant_id, user_id, channel, assistant, title, state, created_at, updated_at";

pub(crate) const MESSAGE: &str =
    "id, conversation_id, created_at, content, role, tool_calls, tool_call_id, tool_name, status, metadata, seq, turn_id, tokens";

pub(crate) const TURN: &str = "id, tenant_id, conversation_id, user_id, kind, assistant, status, step, takeovers, stalled, key_id, cancel_requested, \
     error, error_code, message, created_at, updated_at, finished_at, credential, context, inbound";

pub(crate) const CALL: &str = "id, tenant_id, conversation_id, turn_id, step, output_index, response_id, kind, runner, tool_name, call_id, \
     item_id, status, request, raw_arguments, repairs, response, error, error_type, error_code, error_detail, effect, attempt, \
     cache_hit, dedupe_key, dedupe_of, retry_of, idempotency_key, permission, context, trace_id, run_id, ingestion_run_id, \
     workflow_id, case_id, meta, taint, created_at, updated_at, started_at, finished_at";

pub(crate) const KEY: &str =
    "id, tenant_id, user_id, scopes, name, expires_at, created_at, last_used_at, allow_ips, safety_mode, collection, replaced_by, root_id";

pub(crate) const CONSOLE_SESSION: &str = "id, tenant_id, key_id, operator_digest, expires_at";

pub(crate) const CONNECTION_REQUEST: &str = "id, tenant_id, user_id, server, scope, sealed, expires_at";

pub(crate) const CONNECTION: &str = "tenant_id, user_id, server, sealed, expires_at, updated_at";

pub(crate) const APPROVAL: &str = "id, tenant_id, conversation_id, turn_id, call_id, tool_name, server_label, arguments, arguments_digest, approver_roles, taint, asked_by, \
     asked_key, retried_by, status, decided_by, decided_key, created_at, decided_at, expires_at";

pub(crate) const OUTBOX: &str = "id, tenant_id, channel, account, recipient, user_id, lane, conversation_id, turn_id, approval_id, part, body, status, \
     repeatable, ambiguous, attempts, error_code, error, external_id, next_at, first_at, created_at, updated_at";

pub(crate) const CONTACT: &str = "channel, account, user_id, address, conversation_id, last_inbound_at";

pub(crate) const ALERT: &str = "id, tenant_id, kind, subject, once, source, detail, opened_at, seen_at, resolved_at";

pub(crate) const AUDIT: &str = "tenant_id, seq, at, user_id, key_id, operator, address, action, subject, person, salt, before, after, \
     before_digest, after_digest, hash";

pub(crate) const AUDIT_HEAD: &str = "tenant_id, seq, hash, count, key_name, signature";

pub(crate) const BUDGET: &str = "id, tenant_id, scope, subject, period, unit, max_amount, configured, created_at";

pub(crate) const TOOL_PIN: &str = "name, server, digest, definition, accepted_at, changed_digest, changed_definition, changed_at";

pub(crate) const EVENT: &str = "seq, type, turn_id, data, created_at";

/// A column list with the name of its table before each column.
pub(crate) fn qualified(columns: &str, table: &str) -> String {
    columns.split(", ").map(|column| format!("{table}.{column}")).collect::<Vec<_>>().join(", ")
}

/// The functions that read each row type from the `Columns` in scope. They are a macro and not generic functions because a function
/// that is passed as an argument must accept the columns of every row, whatever their lifetime.
macro_rules! readings {
    () => {
        $crate::reading::usage_readings!();
        $crate::reading::foreign_readings!();

        pub(super) fn tenant(c: &mut Columns<'_>) -> Result<$crate::TenantRow, $crate::StoreError> {
            Ok($crate::TenantRow { id: c.id()?, slug: c.text()? })
        }

        pub(super) fn person_address(c: &mut Columns<'_>) -> Result<$crate::PersonAddress, $crate::StoreError> {
            let (user_id, branch_id, locale) = (c.int()?, c.int_or_null()?, c.text()?);
            Ok($crate::PersonAddress { user_id, branch_id, locale, phone: c.text_or_null()?, whatsapp_user_id: c.text_or_null()? })
        }

        pub(super) fn user(c: &mut Columns<'_>) -> Result<$crate::UserRow, $crate::StoreError> {
            let (id, first_name, last_name) = (c.int()?, c.text()?, c.text()?);
            let token_roles = c.text_or_null()?.map(|text| serde_json::from_str::<$crate::TokenRoles>(&text)).transpose();
            let mut token_roles = token_roles.map_err(|error| $crate::StoreError::Broken(format!("users.token_roles of {id}: {error}")))?;
            if let (Some(roles), Some(until)) = (&mut token_roles, c.time_or_null()?) {
                roles.until = until;
            }
            Ok($crate::UserRow { id, first_name, last_name, token_roles })
        }

        pub(super) fn audit(c: &mut Columns<'_>) -> Result<$crate::AuditRow, $crate::StoreError> {
            Ok($crate::AuditRow {
                tenant_id: c.id()?,
                seq: c.int()?,
                at: c.time()?,
                actor: $crate::Actor { user_id: c.text_or_null()?, key_id: c.id_or_null()?, operator: c.flag()? },
                address: c.text_or_null()?,
                action: c.text()?,
                subject: c.text()?,
                person: c.text_or_null()?,
                salt: c.text_or_null()?,
                before: c.text_or_null()?,
                after: c.text_or_null()?,
                before_digest: c.text_or_null()?,
                after_digest: c.text_or_null()?,
                hash: c.text()?,
            })
        }

        pub(super) fn console_session(c: &mut Columns<'_>) -> Result<$crate::ConsoleSession, $crate::StoreError> {
            let (id, tenant_id, key_id, operator) = (c.id()?, c.id()?, c.id_or_null()?, c.text_or_null()?);
            let holder = match key_id {
                Some(id) => $crate::SessionHolder::Key { tenant_id, id },
                None => $crate::SessionHolder::Operator($crate::KeyDigest(operator.unwrap_or_default())),
            };
            Ok($crate::ConsoleSession { id, holder, expires_at: c.time()? })
        }

        pub(super) fn hint(c: &mut Columns<'_>) -> Result<$crate::HintRow, $crate::StoreError> {
            let (kind, id, status, user_id) = (c.parsed($crate::HintKind::parse)?, c.id()?, c.text()?, c.text_or_null()?);
            let approver_roles = c.text_or_null()?.and_then(|roles| serde_json::from_str(&roles).ok()).unwrap_or_default();
            Ok($crate::HintRow { kind, id, status, user_id, approver_roles, open: c.flag()? })
        }

        pub(super) fn audit_head(c: &mut Columns<'_>) -> Result<$crate::AuditHead, $crate::StoreError> {
            Ok($crate::AuditHead {
                tenant_id: c.id()?,
                seq: c.int()?,
                hash: c.text()?,
                count: c.int()?,
                key_name: c.text_or_null()?,
                signature: c.text_or_null()?,
            })
        }

        pub(super) fn row_counts(c: &mut Columns<'_>) -> Result<$crate::RowCounts, $crate::StoreError> {
            Ok($crate::RowCounts {
                tenants: c.int()?,
                users: c.int()?,
                api_keys: c.int()?,
                conversations: c.int()?,
                open_turns: c.int()?,
                pending_approvals: c.int()?,
                recent_calls: c.int()?,
                recent_failed_calls: c.int()?,
            })
        }

        pub(super) fn conversation(c: &mut Columns<'_>) -> Result<$crate::ConversationRow, $crate::StoreError> {
            Ok($crate::ConversationRow {
                id: c.id()?,
                tenant_id: c.id()?,
                user_id: c.text()?,
                channel: c.text()?,
                assistant: c.text()?,
                title: c.text()?,
                state: c.state()?,
                created_at: c.time()?,
                updated_at: c.time()?,
            })
        }

        pub(super) fn message(c: &mut Columns<'_>) -> Result<$crate::MessageRow, $crate::StoreError> {
            Ok($crate::MessageRow {
                id: c.id()?,
                conversation_id: c.id()?,
                created_at: c.time()?,
                content: c.text()?,
                role: c.text()?,
                tool_calls: c.text_or_null()?,
                tool_call_id: c.text_or_null()?,
                tool_name: c.text_or_null()?,
                status: c.text_or_null()?,
                metadata: c.text()?,
                seq: c.int_or_null()?,
                turn_id: c.id_or_null()?,
                tokens: c.int_or_null()?,
            })
        }

        pub(super) fn turn(c: &mut Columns<'_>) -> Result<$crate::TurnRow, $crate::StoreError> {
            Ok($crate::TurnRow {
                id: c.id()?,
                tenant_id: c.id()?,
                conversation_id: c.id_or_null()?,
                user_id: c.text()?,
                kind: c.text()?,
                assistant: c.text()?,
                status: c.parsed(werkruf_contract::TurnStatus::parse)?,
                step: c.small()?,
                takeovers: c.small()?,
                stalled: c.small()?,
                key_id: c.id_or_null()?,
                cancel_requested: c.flag()?,
                error: c.text_or_null()?,
                error_code: c.text_or_null()?,
                message: c.text_or_null()?,
                created_at: c.time()?,
                updated_at: c.time()?,
                finished_at: c.time_or_null()?,
                credential: c.text()?,
                context: c.text_or_null()?,
                inbound: c.text_or_null()?,
            })
        }

        pub(super) fn resume_point(c: &mut Columns<'_>) -> Result<$crate::ResumePoint, $crate::StoreError> {
            Ok($crate::ResumePoint { conversation_id: c.id()?, turn_id: c.id()? })
        }

        pub(super) fn sent_turn(c: &mut Columns<'_>) -> Result<$crate::SentTurn, $crate::StoreError> {
            Ok($crate::SentTurn {
                conversation_id: c.id()?,
                turn_id: c.id()?,
                status: c.parsed(werkruf_contract::TurnStatus::parse)?,
                finished_at: c.time_or_null()?,
                is_newest: c.flag()?,
                request: c.text_or_null()?,
                results: c.text_or_null()?,
            })
        }

        pub(super) fn call(c: &mut Columns<'_>) -> Result<$crate::CallRow, $crate::StoreError> {
            Ok($crate::CallRow {
                id: c.id()?,
                tenant_id: c.id()?,
                conversation_id: c.id_or_null()?,
                turn_id: c.id()?,
                step: c.small()?,
                output_index: c.small()?,
                response_id: c.text_or_null()?,
                kind: c.parsed(werkruf_contract::CallKind::parse)?,
                runner: c.parsed(werkruf_contract::Runner::parse)?,
                tool_name: c.text()?,
                call_id: c.text_or_null()?,
                item_id: c.text_or_null()?,
                status: c.parsed(werkruf_contract::CallStatus::parse)?,
                request: c.text_or_null()?,
                raw_arguments: c.text_or_null()?,
                repairs: c.text_or_null()?,
                response: c.text_or_null()?,
                error: c.text_or_null()?,
                error_type: c.text_or_null()?,
                error_code: c.text_or_null()?,
                error_detail: c.text_or_null()?,
                effect: c.parsed(werkruf_contract::Effect::parse)?,
                attempt: c.small()?,
                cache_hit: c.flag()?,
                dedupe_key: c.text_or_null()?,
                dedupe_of: c.id_or_null()?,
                retry_of: c.id_or_null()?,
                idempotency_key: c.text_or_null()?,
                permission: c.text_or_null()?,
                context: c.text()?,
                trace_id: c.text_or_null()?,
                run_id: c.text_or_null()?,
                ingestion_run_id: c.text_or_null()?,
                workflow_id: c.text_or_null()?,
                case_id: c.text_or_null()?,
                meta: c.text_or_null()?,
                taint: c.text_or_null()?,
                created_at: c.time()?,
                updated_at: c.time()?,
                started_at: c.time_or_null()?,
                finished_at: c.time_or_null()?,
            })
        }

        pub(super) fn attempt(c: &mut Columns<'_>) -> Result<$crate::AttemptRow, $crate::StoreError> {
            Ok($crate::AttemptRow {
                attempt: c.small()?,
                started_at: c.time()?,
                finished_at: c.time()?,
                status: c.parsed(werkruf_contract::CallStatus::parse)?,
                error: c.text()?,
            })
        }

        pub(super) fn event(c: &mut Columns<'_>) -> Result<$crate::EventRow, $crate::StoreError> {
            Ok($crate::EventRow {
                seq: c.int()?,
                kind: c.parsed(werkruf_contract::EventType::parse)?,
                turn_id: c.id_or_null()?,
                data: c.text()?,
                created_at: c.time()?,
            })
        }

        pub(super) fn key(c: &mut Columns<'_>) -> Result<$crate::KeyRow, $crate::StoreError> {
            Ok($crate::KeyRow {
                id: c.id()?,
                tenant_id: c.id()?,
                user_id: c.text_or_null()?,
                scopes: c.parsed(|names| $crate::Scopes::parse(names.split(',').filter(|name| !name.is_empty())).ok())?,
                name: c.text_or_null()?,
                expires_at: c.time_or_null()?,
                created_at: c.time()?,
                last_used_at: c.time_or_null()?,
                allow_ips: c.text_or_null()?.map_or_else(Vec::new, |list| list.split(',').map(str::to_owned).collect()),
                safety_mode: c.text_or_null()?,
                collection: c.text_or_null()?,
                replaced_by: c.id_or_null()?,
                root_id: c.id_or_null()?,
            })
        }

        pub(super) fn alert(c: &mut Columns<'_>) -> Result<$crate::AlertRow, $crate::StoreError> {
            Ok($crate::AlertRow {
                id: c.id()?,
                key: $crate::AlertKey { tenant_id: c.id()?, kind: c.text()?, subject: c.text()? },
                once: c.flag()?,
                source: c.text_or_null()?,
                detail: c.text()?,
                opened_at: c.time()?,
                seen_at: c.time()?,
                resolved_at: c.time_or_null()?,
            })
        }

        pub(super) fn outbox(c: &mut Columns<'_>) -> Result<$crate::OutboxRow, $crate::StoreError> {
            Ok($crate::OutboxRow {
                id: c.id()?,
                tenant_id: c.id()?,
                recipient: $crate::Recipient {
                    channel: c.text()?,
                    account: c.text()?,
                    address: c.text()?,
                    user_id: c.text_or_null()?,
                    lane: c.text()?,
                },
                conversation_id: c.id_or_null()?,
                turn_id: c.id_or_null()?,
                approval_id: c.id_or_null()?,
                part: c.small()?,
                body: c.text()?,
                status: c.parsed($crate::OutboxStatus::from_name)?,
                repeatable: c.flag()?,
                ambiguous: c.flag()?,
                attempts: c.small()?,
                error_code: c.text_or_null()?,
                error: c.text_or_null()?,
                external_id: c.text_or_null()?,
                next_at: c.time()?,
                first_at: c.time_or_null()?,
                created_at: c.time()?,
                updated_at: c.time()?,
            })
        }

        pub(super) fn contact(c: &mut Columns<'_>) -> Result<$crate::ContactRow, $crate::StoreError> {
            Ok($crate::ContactRow {
                channel: c.text()?,
                account: c.text()?,
                user_id: c.text()?,
                address: c.text()?,
                conversation_id: c.id_or_null()?,
                last_inbound_at: c.time_or_null()?,
            })
        }

        pub(super) fn approval(c: &mut Columns<'_>) -> Result<$crate::ApprovalRow, $crate::StoreError> {
            Ok($crate::ApprovalRow {
                id: c.id()?,
                tenant_id: c.id()?,
                conversation_id: c.id_or_null()?,
                turn_id: c.id()?,
                call_id: c.id()?,
                tool_name: c.text()?,
                server_label: c.text_or_null()?,
                arguments: c.text()?,
                arguments_digest: c.text()?,
                approver_roles: c.parsed(|text| serde_json::from_str(text).ok())?,
                taint: c.text_or_null()?,
                asked_by: c.text()?,
                asked_key: c.text()?,
                retried_by: c.text_or_null()?,
                status: c.parsed(werkruf_contract::ApprovalStatus::parse)?,
                decided_by: c.text_or_null()?,
                decided_key: c.text_or_null()?,
                created_at: c.time()?,
                decided_at: c.time_or_null()?,
                expires_at: c.time()?,
            })
        }
    };
}
pub(crate) use readings;
