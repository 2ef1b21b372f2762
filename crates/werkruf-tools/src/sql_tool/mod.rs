//! SQL tools that operators declare in the config file: one named query on a database of the operator, which only reads.
//!
//! `config` validates a declaration; the store runs the query (`werkruf_store::OperatorDatabase`). Who calls is bound to `:tenant_id`,
//! `:user_id` and `:branch_id`; no argument of a model has these names.

mod config;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use werkruf_contract::{
    BoxFuture, Deadline, Effect, ErrorCode, Failure, Invocation, Principal, Reply, Shape, ToolErrorType, ToolObject, ToolSpec, Violation,
};
use werkruf_store::{BoundedRead, OperatorDatabase, ReadError, ReadRows};

pub use config::SqlToolConfig;

use crate::declared_fields::{ConfigFault, Variables, normalized, timeout_ms};

/// A query that an operator declared.
pub struct SqlTool {
    spec: ToolSpec,
    timeout: Duration,
    parameters: Value,
    shape: Shape,
    database: Arc<dyn OperatorDatabase>,
    names: Vec<String>,
    max_rows: usize,
}

impl SqlTool {
    /// Validates a declaration and builds the tool. Opens nothing.
    pub fn new(config: &SqlToolConfig, env: Variables<'_>) -> Result<Self, ConfigFault> {
        if let Some(fault) = config.faults(env).into_iter().next() {
            return Err(fault);
        }
        let (parameters, shape) = config.schema()?;
        let query = config.query(env)?;
        let names = query.names().to_vec();
        let timeout = Duration::from_millis(timeout_ms(config.timeout_ms));
        let spec = ToolSpec {
            permission: config.need()?,
            timeout: Some(timeout),
            attempts: config.attempts,
            reuse: config.reuse_s.map(Duration::from_secs),
            repeat_limit: config.repeat_limit,
            version: Cow::Owned(config.digest()),
            max_response_bytes: usize::try_from(config.max_response_bytes).unwrap_or(usize::MAX),
            concurrency: config.concurrency,
            tenants: config.tenants.clone(),
            trust: config.trust,
            approval: config.approval.clone().into_iter().map(Cow::Owned).collect(),
            ..ToolSpec::new(config.name.clone(), config.description.clone(), Effect::Read)
        };
        let database = config.open(query, env)?;
        Ok(Self { spec, timeout, parameters, shape, database, names, max_rows: config.max_rows })
    }

    async fn read(&self, args: &Value, invocation: &Invocation) -> Result<Reply, Failure> {
        let read = BoundedRead {
            values: self.names.iter().map(|name| value_of(name, args, &invocation.principal)).collect(),
            max_rows: self.max_rows,
            max_bytes: self.spec.max_response_bytes,
            deadline: Deadline::after(self.timeout).earlier(invocation.deadline),
            cancel: invocation.cancel.clone(),
        };
        self.database.read(read).await.map(reply).map_err(|error| failure(&error))
    }
}

impl std::fmt::Debug for SqlTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl ToolObject for SqlTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn normalize(&self, args: Value) -> Result<Value, Vec<Violation>> {
        normalized(args, &self.parameters, Some(&self.shape))
    }

    fn call(&self, args: Value, invocation: Invocation) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(async move { self.read(&args, &invocation).await })
    }
}

/// The value of a parameter: the caller's, else the model's. An argument that was left out is null.
fn value_of(name: &str, args: &Value, principal: &Principal) -> Value {
    match name {
        "tenant_id" => json!(principal.tenant_id),
        "user_id" => json!(principal.user_id),
        "branch_id" => json!(principal.branch_id),
        other => args.get(other).cloned().unwrap_or_default(),
    }
}

fn reply(read: ReadRows) -> Reply {
    let count = read.rows.len();
    let mut data =
        json!({"items": read.rows.into_iter().map(Value::Object).collect::<Vec<_>>(), "count": count, "truncated": read.truncated});
    let note = read.truncated.then(|| format!("There are more rows; only the first {count} are shown. Narrow the search."));
    if let (Some(note), Some(object)) = (&note, data.as_object_mut()) {
        object.insert("message".to_owned(), json!(note));
    }
    let source_counts = Some([("rows".to_owned(), count as u64)].into());
    let routing = read.truncated.then(|| Map::from_iter([("truncated".to_owned(), json!(true))]));
    Reply { message: note, source_counts, routing, ..Reply::new(data) }
}

fn failure(error: &ReadError) -> Failure {
    let failure = match error {
        ReadError::Unreachable(_) => {
            Failure::upstream(ErrorCode::UpstreamUnreachable, "The database behind this tool could not be reached.")
        }
        ReadError::Overdue => {
            Failure::new(ToolErrorType::Timeout, ErrorCode::ToolTimeout, "The database behind this tool did not answer in time.")
        }
        ReadError::Canceled => Failure::fatal(ErrorCode::Canceled, "The call was canceled."),
        ReadError::Argument(_) => {
            Failure::validation(ErrorCode::InvalidArguments, "An argument has a form that the database behind this tool does not accept.")
        }
        ReadError::TooLarge => {
            Failure::fatal(ErrorCode::ResponseTooLarge, "The rows are larger than this tool may return. Narrow the search.")
        }
        ReadError::Query(_) => Failure::fatal(ErrorCode::UpstreamRefused, "The database behind this tool refused the query."),
    };
    // A read has no effect.
    failure.because(error.to_string()).nothing_happened()
}
