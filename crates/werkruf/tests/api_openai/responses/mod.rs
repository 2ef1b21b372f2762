//! The Responses endpoints.

mod answers;
pub mod client;
mod client_tools;
mod copies;
mod requests;
mod resumed;
pub mod schema;
mod stored;
